// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Our reductions in torch's words.
//
// Pure.

#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>

#include "base/error.h"
#include "ops/types.h"

namespace chainmail::internal {

/// Throws InvalidArgument, in the name of the communicator, for bitwise operations: torch's
/// backends have none in common.
[[nodiscard]] inline c10d::ReduceOp to_torch_reduce_op(ops::ReduceOp op,
                                                       const std::string& communicator) {
  switch (op) {
    case ops::ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ops::ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ops::ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ops::ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ops::ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ops::ReduceOp::kBitAnd:
    case ops::ReduceOp::kBitOr:
    case ops::ReduceOp::kBitXor:
      break;
  }
  throw InvalidArgument("communicator '" + communicator + "' has no all_reduce " + to_string(op));
}

}  // namespace chainmail::internal
