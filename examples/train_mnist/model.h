// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The multi-layer perceptron of ChainerMN's MNIST example: 784-units-units-10, ReLU.

#pragma once

#include <cstdint>

#include <torch/torch.h>

struct MlpImpl : torch::nn::Module {
  MlpImpl(std::int64_t inputs, std::int64_t units, std::int64_t outputs)
      : l1(register_module("l1", torch::nn::Linear(inputs, units))),
        l2(register_module("l2", torch::nn::Linear(units, units))),
        l3(register_module("l3", torch::nn::Linear(units, outputs))) {}

  torch::Tensor forward(const torch::Tensor& x) { return l3(torch::relu(l2(torch::relu(l1(x))))); }

  torch::nn::Linear l1;
  torch::nn::Linear l2;
  torch::nn::Linear l3;
};
TORCH_MODULE(Mlp);
