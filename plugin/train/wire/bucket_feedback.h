// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an integer wire has rounded away of a bucket's means so far, on this rank: the exchange adds
// it to the next gradients, so that over many steps nothing is lost. Buckets of the same parameters
// that take turns (double buffering) have one together.
//
// Gradients may carry a loss scale that changes between exchanges; what is owed follows it.
//
// Some exchanges add up what they round and what they lose. Each rank knows its own part; an
// exchange after them makes the mean of all known.
//
// One thread at a time, but for what add_to() says. Local.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/core/operation.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/sharding/slice_cut.h"
#include "plugin/train/wire/gradient_debts.h"
#include "plugin/train/wire/wire_residuals.h"

namespace chainmail::internal {

/// Whether the gradient of a parameter is rounded on an integer wire. Others have few elements, or
/// are ones that a scale shared with larger neighbours would hurt; they travel as they are.
[[nodiscard]] bool is_rounded_to_integers(const at::Tensor& parameter);
/// Throws InvalidArgument, naming it, for a parameter of float32 on a GPU, where the integer wire
/// `wire` does not round.
void check_on_host(const NamedTensor& parameter, ops::WireFormat wire);

class BucketFeedback {
 public:
  /// Of a row of `elements`, which begins with gradients at `places`, those that are rounded.
  /// Memory is taken as it is touched.
  BucketFeedback(std::vector<ParameterPlace> places, std::size_t elements);

  /// Makes `collective`, an exchange of gradients that were made with a loss scale of `scale`, the
  /// next one that reads and writes the residuals. They are fitted to that scale by whoever runs
  /// it, just before: those of a group run in the order of these calls.
  static void add_to(ops::Collective& collective, const std::shared_ptr<BucketFeedback>& feedback,
                     double scale);
  /// Before add_to(): what this rank's next exchange is to tell the others, `given` and `lost` of
  /// an earlier one, or zeros.
  [[nodiscard]] std::array<float, 2> error_to_tell() const noexcept;
  /// The means of what all ranks have told.
  void learn_error(float given, float lost) noexcept;
  /// Of the last exchange that was measured and told of, over all ranks, up to a common factor;
  /// zeros before. The same on all ranks.
  const ops::RoundingError& error() const noexcept { return error_; }

  /// After the last exchange: makes the residuals debts of the same bucket over `ranks`. Nothing
  /// else may follow.
  void give_to(GradientDebts& debts, int ranks) const;

  // For checkpoints, between exchanges.

  /// Of gradient `index`: views of its residuals.
  struct Kept {
    at::Tensor contributions;
    at::Tensor results;
    double factor = 1;  ///< makes residuals what they are at a loss scale of 1
  };
  [[nodiscard]] Kept kept(std::size_t index) const;
  /// Gradients that are rounded.
  std::size_t size() const noexcept { return places_.size(); }
  const ParameterPlace& place(std::size_t index) const { return places_.at(index); }
  std::uint64_t exchanges() const noexcept { return residuals_.exchanges(); }
  void set_exchanges(std::uint64_t exchanges) noexcept { residuals_.set_exchanges(exchanges); }
  /// As if there had been no exchange.
  void clear();

 private:
  void fit_to(double scale) noexcept;
  at::Tensor part(const at::Tensor& row, std::size_t index) const;

  std::vector<ParameterPlace> places_;
  WireResiduals residuals_;
  ops::RoundingError measured_;  ///< this rank's part; the engine's while that exchange runs
  ops::RoundingError error_;
  double scale_ = 1;  ///< of the residuals; of the thread that runs exchanges
};

}  // namespace chainmail::internal
