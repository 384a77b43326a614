// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an integer wire has rounded away of a bucket's means so far, on this rank, and what this
// rank owes otherwise: both are added to the next gradients, so that over many steps nothing is
// lost. Buckets of the same parameters that take turns (double buffering) have one together.
//
// Gradients may carry a loss scale that changes between exchanges; what is owed follows it.
//
// One thread at a time, but for what add_to() says. Local.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/core/operation.h"
#include "plugin/train/sharding/slice_cut.h"

namespace chainmail::internal {

/// Whether the gradient of a parameter is rounded on an integer wire. Others have few elements, or
/// are ones that a scale shared with larger neighbours would hurt; they travel as they are.
[[nodiscard]] bool is_rounded_to_integers(const at::Tensor& parameter);

/// What every rank is to add to its own next gradient of a parameter, at a loss scale of 1, for
/// nothing to be lost. In the order of memory.
struct Debt {
  at::Tensor parameter;
  at::Tensor owed;
};

class BucketFeedback {
 public:
  /// What this rank is told of the means: all, or with slices those of its own slice, which a rank
  /// on each node has.
  struct Share {
    std::size_t begin = 0;
    std::size_t end = static_cast<std::size_t>(-1);
    int owners = 1;  ///< of an element
  };

  /// Of a row of `elements`, which begins with gradients of `parameters` at `places`, those that
  /// are rounded. Memory is taken as it is touched.
  BucketFeedback(std::vector<at::Tensor> parameters, std::vector<ParameterPlace> places,
                 std::size_t elements, int ranks, Share share);

  /// Makes the exchange of `row`, whose gradients were made with a loss scale of `scale`, the next
  /// one that reads and writes the residuals, and pays what else is owed. Residuals are fitted to
  /// that scale by whoever runs the exchange, just before: those of a group run in the order of
  /// these calls.
  static void add_to(ops::Collective& collective, const std::shared_ptr<BucketFeedback>& feedback,
                     const at::Tensor& row, double scale);
  /// Of gradient `index`, which nobody had, so that nobody will use its mean: that is what ranks
  /// have paid of what they owed, and is owed again. `means` begin with element `first` of the row.
  void take_back(std::size_t index, const at::Tensor& means, std::size_t first, double scale);
  /// After the last exchange, and once: all that this rank owes.
  [[nodiscard]] std::vector<Debt> take_debts();
  /// Adds `debt` to what the next exchange pays, if it is of one of the parameters.
  void owe(const Debt& debt);

 private:
  struct Owed {
    at::Tensor values;  ///< undefined: nothing
    double scale = 1;
  };
  void fit_to(double scale) noexcept;
  void owe(std::size_t index, std::size_t begin, const at::Tensor& values, double weight,
           double scale);
  at::Tensor part(const at::Tensor& row, std::size_t index) const;

  std::vector<at::Tensor> parameters_;
  std::vector<ParameterPlace> places_;
  int ranks_;
  Share share_;
  at::Tensor contributions_;
  at::Tensor results_;
  std::uint64_t exchanges_ = 0;
  double scale_ = 1;  ///< of the residuals; of the thread that runs exchanges
  std::vector<Owed> owed_;
};

}  // namespace chainmail::internal
