// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Weights of models whose ranks are threads.

#pragma once

#include <torch/torch.h>

namespace chainmail::testing {

/// Sets all parameters, to others for another `value`. Threads share torch's default generator.
inline void fill(torch::nn::Module& module, double value) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) {
    parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()) + value);
  }
}

}  // namespace chainmail::testing
