// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One operation as PyTorch's profiler shows it: from the call to its end, with the tensors' shapes.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace chainmail::internal {

/// Begins the event in the calling thread. Nearly free when no profiler is active, and returns
/// nothing then; else what ends the event, in any thread, when it is called or goes. Nobody may see
/// the operation's end before that: a profiler that is stopped then would read what is written to.
[[nodiscard]] std::function<void()> begin_profiled(const char* title, at::TensorList tensors);

}  // namespace chainmail::internal
