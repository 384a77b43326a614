// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One operation as PyTorch's profiler shows it: from the call to its end, with the tensors' shapes.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "ops/engine/group.h"

namespace chainmail::internal {

/// Begins the event in the calling thread. Nearly free when no profiler is active.
class ProfiledCall {
 public:
  ProfiledCall(const char* title, at::TensorList tensors);
  ~ProfiledCall();
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

  /// The event ends with `operation`, in any thread; otherwise with this object.
  void end_with(ops::Operation& operation);

 private:
  std::function<void()> end_;
};

}  // namespace chainmail::internal
