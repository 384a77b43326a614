// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What this rank is to add to the gradients of a bucket, for nothing to be lost that an integer
// wire has rounded away elsewhere: in buckets that are there no longer, in a job that a checkpoint
// is of, or of a gradient that nobody had. A bucket on any wire pays it, in its next exchange.
//
// One thread at a time. Local.

#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugin/tensor/memory_layout.h"
#include "plugin/train/sharding/slice_cut.h"

namespace chainmail::internal {

/// What every rank is to add to its own next gradient of a parameter, at a loss scale of 1, for
/// nothing to be lost.
struct Debt {
  at::Tensor parameter;
  at::Tensor owed;      ///< a row
  MemoryLayout layout;  ///< the order of its elements
};

class GradientDebts {
 public:
  /// What this rank is told of the means: all, or with slices those of its own slice, which a rank
  /// on each node has.
  struct Share {
    std::size_t begin = 0;
    std::size_t end = static_cast<std::size_t>(-1);
    int owners = 1;  ///< of an element
  };

  /// Of gradients of `parameters`, whose elements lie as `layouts` say at `places` of a row.
  GradientDebts(std::vector<at::Tensor> parameters, std::vector<MemoryLayout> layouts,
                std::vector<ParameterPlace> places, int ranks, Share share);

  /// Adds what is owed to `row`, whose gradients were made with a loss scale of `scale`.
  void pay(const at::Tensor& row, double scale);
  /// From now on any rank may owe something. On all ranks.
  void expect() noexcept { are_expected_ = true; }
  bool are_expected() const noexcept { return are_expected_; }
  /// Of gradient `index`, which nobody had, so that nobody will use its mean: that is what ranks
  /// have paid of what they owed, and is owed again. `means` begin with element `first` of the row.
  void take_back(std::size_t index, const at::Tensor& means, std::size_t first, double scale);

  /// Adds `debt` to what is owed, if it is of one of the parameters.
  void owe(const Debt& debt);
  /// Adds `weight` times `values` to it, which are of elements `begin` on of gradient `index`, at a
  /// loss scale of `scale`. What all ranks are to add weighs 1, what fewer are accordingly more.
  void owe(std::size_t index, std::size_t begin, const at::Tensor& values, double weight,
           double scale = 1);
  /// All that is owed; nothing is any more.
  [[nodiscard]] std::vector<Debt> take();
  /// A copy of what is owed of gradient `index`, at a loss scale of 1. Undefined: nothing.
  [[nodiscard]] at::Tensor of(std::size_t index) const;
  /// Elements of gradient `index`.
  std::size_t elements(std::size_t index) const { return places_.at(index).count; }
  void clear();

 private:
  struct Owed {
    at::Tensor values;  ///< undefined: nothing
    double scale = 1;
  };

  std::vector<at::Tensor> parameters_;
  std::vector<MemoryLayout> layouts_;
  std::vector<ParameterPlace> places_;
  int ranks_;
  Share share_;
  std::vector<Owed> owed_;
  bool are_expected_ = false;
};

}  // namespace chainmail::internal
