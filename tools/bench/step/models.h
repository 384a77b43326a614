// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The models whose training steps are measured.

#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/modules/container/sequential.h>

namespace chainmail::bench {

/// The layers of `paced` and the bytes of each one's gradient.
inline constexpr int kPacedLayers = 25;
inline constexpr std::int64_t kPacedBytes = std::int64_t{1} << 20;

/// `mlp`: 784-1024-1024-10, 6 tensors, 1.9 M parameters. `layers`: 60 linear layers of 128 units
/// between an input of 784 and 10 outputs, 124 tensors, 1.1 M parameters. `paced`: 25 layers with a
/// gradient of 1 MiB each, for which backward multiplies `loops` small matrices and forward does
/// next to nothing, so that computing and sending can be set against each other. Weights depend on
/// the name alone. Throws InvalidArgument for other names.
[[nodiscard]] torch::nn::Sequential make_model(const std::string& name, std::int64_t loops = 0);

/// How many loops make the backward of all paced layers last `milliseconds` on this core, measured
/// now.
[[nodiscard]] std::int64_t loops_for(double milliseconds);

}  // namespace chainmail::bench
