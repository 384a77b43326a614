// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/models.h"

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include <chainmail/error.h>

namespace chainmail::bench {

torch::nn::Sequential make_model(const std::string& name) {
  std::vector<std::int64_t> units;
  if (name == "mlp") {
    units = {784, 1024, 1024, 10};
  } else if (name == "layers") {
    units.assign(62, 128);
    units.front() = 784;
    units.push_back(10);
  } else {
    throw InvalidArgument("--model " + name + ": use mlp or layers");
  }
  torch::manual_seed(0);
  torch::nn::Sequential model;
  for (std::size_t i = 0; i + 1 < units.size(); ++i) {
    model->push_back(torch::nn::Linear(units[i], units[i + 1]));
    if (i + 2 < units.size()) {
      model->push_back(torch::nn::ReLU());
    }
  }
  return model;
}

}  // namespace chainmail::bench
