// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// All gradients of one dtype in one flat tensor, so that a step exchanges one message per dtype.
//
// Behind the gradients lie two numbers per parameter: one is 1 where this rank has a gradient, the
// other where it has none. Their means over the ranks are zero only if they are zero everywhere, so
// every rank learns from the same exchange who is missing what, and all decide alike.

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugin/train/parameter_list.h"

namespace chainmail::internal {

/// Who has a gradient of one parameter.
struct Presence {
  bool somewhere = false;  ///< on at least one rank
  bool everywhere = false;
};

class GradientBucket {
 public:
  /// `parameters` are trainable, of one dtype.
  explicit GradientBucket(std::vector<NamedTensor> parameters);

  /// Copies the gradients that do not lie here yet and fills in the numbers. Sparse gradients
  /// become dense.
  void gather();
  /// What the ranks average.
  const at::Tensor& flat() const noexcept { return flat_; }
  /// After the exchange, in the order of parameters().
  std::vector<Presence> presence() const;
  /// Points every gradient that exists somewhere at its mean; the others stay undefined.
  void scatter(const std::vector<Presence>& presence);

  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }

 private:
  std::vector<NamedTensor> parameters_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;  ///< one per parameter, shaped like it
  at::Tensor marks_;               ///< the numbers behind the gradients, [2, parameters]
};

/// The gradient as a dense tensor of the parameter's dtype; throws InvalidArgument when it is not
/// on the CPU or not of the parameter's shape.
[[nodiscard]] at::Tensor dense_gradient(const NamedTensor& parameter);

}  // namespace chainmail::internal
