// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tells when autograd has finished a gradient, and when a backward pass ends.
//
// Both are called in the thread that called backward() or, for parameters on a GPU, in a thread of
// autograd's for that device while it waits. What they throw reaches its caller.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

/// Who exchanges the gradients that hooks tell of.
struct GradientTaker {
  bool is_optimizer = false;   ///< and steps with their means
  bool leaves_slices = false;  ///< after its exchange no parameter has a gradient
};

/// The one that has a hook on `parameter`; null where nobody has.
[[nodiscard]] const GradientTaker* taker_of(const at::Tensor& parameter);

/// Hooks on trainable parameters, taken off again by the destructor. A tensor has room for one such
/// hook: a later set takes the place of an earlier one, whose destructor then leaves it alone.
class GradientHooks {
 public:
  /// `ready(i)` is called after the gradient of `parameters[i]` was written or added to.
  GradientHooks(const std::vector<NamedTensor>& parameters, std::function<void(std::size_t)> ready,
                std::shared_ptr<const GradientTaker> taker = nullptr);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct Installed {
    at::Tensor parameter;
    const void* hook;
  };
  std::vector<Installed> installed_;
};

/// From within a hook: calls `callback` once, when the pass that runs now has finished all
/// gradients. A pass that ends with an exception never calls it.
void at_end_of_backward(std::function<void()> callback);

}  // namespace chainmail::internal
