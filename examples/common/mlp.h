// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The model of the MNIST examples.
//
// Local.

#pragma once

#include <cstdint>

#include <torch/torch.h>

// ChainerMN's: inputs-units-units-outputs with ReLU.
inline torch::nn::Sequential make_mlp(std::int64_t inputs, std::int64_t units,
                                      std::int64_t outputs) {
  torch::nn::Sequential model;
  model->push_back("l1", torch::nn::Linear(inputs, units));
  model->push_back(torch::nn::ReLU());
  model->push_back("l2", torch::nn::Linear(units, units));
  model->push_back(torch::nn::ReLU());
  model->push_back("l3", torch::nn::Linear(units, outputs));
  return model;
}
