// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the side-by-side comparison is made of: element types, shapes, layouts, reductions, and the
// values that every rank brings.

#pragma once

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chainmail::side_by_side {

enum class Layout {
  kPlain,
  kTransposed,
  kStrided,
  kMixed,  ///< plain on even ranks, transposed on odd ones
};

struct Shape {
  std::string name;
  std::vector<std::int64_t> sizes;
  Layout layout = Layout::kPlain;
};

struct Reduction {
  std::string name;
  c10d::ReduceOp::RedOpType type = c10d::ReduceOp::SUM;

  /// As callers of c10d make it; PREMUL_SUM with a factor of 2.
  c10d::ReduceOp op() const;
};

struct Case {
  at::ScalarType dtype = at::kFloat;
  Shape shape;
  Reduction reduction;
  bool is_async = true;
  int rank = 0;
  int size = 1;
};

const std::vector<at::ScalarType>& dtypes();
const std::vector<Shape>& shapes();
const std::vector<Reduction>& reductions();

/// False where no values are right: bitwise operations of floats, averages of bool ...
bool has_meaning(const Reduction& reduction, at::ScalarType dtype);

/// The values of `rank`; `part` tells several tensors of one rank apart. Small whole numbers, so
/// that sums are exact in every type.
at::Tensor values(const Case& what, const std::vector<std::int64_t>& sizes, int rank, int part = 0);

/// `tensor` in memory laid out as the case wants it.
at::Tensor laid_out(const at::Tensor& tensor, Layout layout);

/// Values of `rank`, in the case's shape and layout.
at::Tensor input(const Case& what, int rank, int part = 0);

/// A place for a result, full of what must not stay.
at::Tensor blank(const Case& what, const std::vector<std::int64_t>& sizes);

/// The sizes of `count` tensors of the case's shape one after another along the first dimension.
std::vector<std::int64_t> stacked(const Case& what, std::int64_t count);

/// What the reduction of these contributions gives.
at::Tensor reduced(const Case& what, const std::vector<at::Tensor>& contributions);

bool is_equal(const at::Tensor& one, const at::Tensor& other);

}  // namespace chainmail::side_by_side
