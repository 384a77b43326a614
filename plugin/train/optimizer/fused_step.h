// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One pass over memory per tensor in place of a dozen small operators.

#pragma once

#include <torch/optim/optimizer.h>

namespace chainmail::internal {

/// Does what optimizer.step() would, on the same state and hyper-parameters, with ATen's fused
/// kernels; results differ from it by rounding. False, with nothing done, when it cannot: only
/// exactly torch::optim::SGD, Adam and AdamW, on dense float32 or float64 CPU parameters whose
/// gradients and state are laid out like them. Local.
[[nodiscard]] bool fused_step(torch::optim::Optimizer& optimizer);

/// Whether fused_step() takes a parameter of this dtype and kind of memory.
[[nodiscard]] bool is_fusable(const at::Tensor& parameter);

}  // namespace chainmail::internal
