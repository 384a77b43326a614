// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The models whose training steps are measured.

#pragma once

#include <string>

#include <torch/nn/modules/container/sequential.h>

namespace chainmail::bench {

/// `mlp`: 784-1024-1024-10, 6 tensors, 1.9 M parameters. `layers`: 60 linear layers of 128 units
/// between an input of 784 and 10 outputs, 124 tensors, 1.1 M parameters. Weights depend on the
/// name alone. Throws InvalidArgument for other names.
[[nodiscard]] torch::nn::Sequential make_model(const std::string& name);

}  // namespace chainmail::bench
