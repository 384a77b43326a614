// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gradients of one dtype that travel as one message, in memory that the group allocates: the ranks
// of a node reduce it where it lies, so that putting a gradient here is the only copy.
//
// Behind the gradients lie two numbers per parameter: one is 1 where this rank has a gradient, the
// other where it has none. Their means over the ranks are zero only if they are zero everywhere, so
// every rank learns from the same exchange who is missing what, and all decide alike.
//
// One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/engine/group.h"
#include "plugin/train/gradients/presence.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

/// Which exchange a message belongs to; ranks that are not at the same one get a MismatchError.
struct ExchangeNumber {
  std::uint64_t step = 0;
  std::uint64_t in_step = 0;  ///< 1 for the first
};

class GradientBucket {
 public:
  /// `parameters` are trainable, of one dtype, on the CPU. Collective: allocates from the group.
  GradientBucket(std::vector<NamedTensor> parameters, ops::Group& group);

  /// Copies gradient `index` here unless it lies here already, and makes the parameter's gradient
  /// the view of it. A sparse one becomes dense, one of another dtype is converted. A parameter
  /// without a gradient counts as missing. Throws InvalidArgument for one that cannot be taken.
  void adopt(std::size_t index);
  /// Adopts all gradients and starts their mean over the ranks; nothing may touch them until
  /// finish(). Synchronous unless `is_async`.
  void start(ops::Group& group, ops::WireFormat wire, const ExchangeNumber& number, bool is_async);
  /// Waits for what start() began, if it did.
  void wait();
  bool is_started() const noexcept { return is_started_; }
  /// After wait(), in the order of parameters(): who has which gradient.
  std::vector<Presence> presence() const;
  /// For which parameters this rank brought one.
  const std::vector<char>& own_presence() const noexcept { return is_present_; }
  /// Points every gradient that exists somewhere at its mean, drops the others, and makes the
  /// bucket ready for the next exchange.
  void finish(const std::vector<Presence>& presence);

  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(flat_.nbytes()); }

 private:
  void write_marks();

  std::vector<NamedTensor> parameters_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;  ///< one per parameter, shaped like it
  at::Tensor marks_;               ///< the numbers behind the gradients, [2, parameters]
  std::vector<char> is_present_;
  std::uint32_t shape_hash_ = 0;
  std::shared_ptr<const std::string> shapes_;  ///< for messages
  std::shared_ptr<ops::Operation> operation_;  ///< in flight
  bool is_started_ = false;
};

/// The gradient as a dense tensor of the parameter's dtype; throws InvalidArgument when it is not
/// on the CPU or not of the parameter's shape.
[[nodiscard]] at::Tensor dense_gradient(const NamedTensor& parameter);

}  // namespace chainmail::internal
