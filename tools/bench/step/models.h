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

/// What a paced layer does in backward, and how long it sleeps in forward.
struct Pace {
  std::int64_t loops = 0;             ///< multiplications of small matrices
  std::int64_t sleep_us = 0;          ///< sleep
  std::int64_t forward_sleep_us = 0;  ///< of `device`
};

/// `mlp`: 784-1024-1024-10, 6 tensors, 1.9 M parameters. `layers`: 60 linear layers of 128 units
/// between an input of 784 and 10 outputs, 124 tensors, 1.1 M parameters. `large`: the same with 24
/// layers of 1016 units, 52 tensors, 25.6 M parameters. `paced` and `device`: 25
/// layers with a gradient of 1 MiB each, whose backward takes as long as `pace` says and whose
/// forward does next to nothing, or for `device` sleeps as long as it says, so that computing and
/// sending can be set against each other.
/// Weights depend on the name alone. Throws InvalidArgument for other names.
[[nodiscard]] torch::nn::Sequential make_model(const std::string& name, const Pace& pace = {});

/// Makes the backward of all paced layers last `milliseconds`: `paced` multiplies, as fast as this
/// core does it now; `device` sleeps, as a thread does that waits for an accelerator, and in
/// forward for `forward_milliseconds`.
[[nodiscard]] Pace pace_for(const std::string& name, double milliseconds,
                            double forward_milliseconds = 0);

}  // namespace chainmail::bench
