// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Translates LibTorch's words into the engine's: element types, reductions.
//
// Pure functions. What the engine does not know is refused with TORCH_CHECK, as users of c10d
// expect.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <string>

#include "ops/engine/group.h"
#include "ops/types.h"

namespace chainmail::internal {

/// How elements of a tensor travel: each is `factor` elements of `dtype`.
struct Elements {
  ops::DataType dtype = ops::DataType::kUInt8;
  std::size_t factor = 1;
};

/// For operations that only move data: any type; those that the engine cannot add travel as bytes.
[[nodiscard]] Elements elements_to_move(c10::ScalarType type);

/// For reductions; complex numbers are pairs under sum and average. `what` names the operation in
/// the error, such as "allreduce".
[[nodiscard]] Elements elements_to_reduce(c10::ScalarType type, ops::ReduceOp op, const char* what);

/// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR; PREMUL_SUM counts as SUM, its factor is the
/// caller's affair.
[[nodiscard]] ops::ReduceOp to_reduce_op(const c10d::ReduceOp& op, const char* what);
/// The reverse, for groups of torch's own. Throws InvalidArgument, in the name of the communicator,
/// for bitwise operations: torch's backends have none in common.
[[nodiscard]] c10d::ReduceOp to_torch_reduce_op(ops::ReduceOp op, const std::string& communicator);

/// An operation that moves `count` elements of `type`.
[[nodiscard]] ops::Collective data_collective(ops::OpKind kind, c10::ScalarType type,
                                              std::int64_t count);

}  // namespace chainmail::internal
