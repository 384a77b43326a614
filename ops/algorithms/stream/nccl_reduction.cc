// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/stream/nccl_reduction.h"

#include <string>

#include "base/error.h"
#include "ops/comm/nccl/nccl_api.h"

namespace chainmail::ops {
namespace {

// 0 and 1 in bytes: "or" is the maximum, "and" the minimum.
NcclReduction of_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return {DataType::kUInt8, ReduceOp::kMax};
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return {DataType::kUInt8, ReduceOp::kMin};
    case ReduceOp::kBitXor:
      break;
  }
  throw InvalidArgument("NCCL cannot reduce bool with bitxor; reduce a copy on the CPU");
}

}  // namespace

NcclReduction nccl_reduction(DataType type, ReduceOp op) {
  if (type == DataType::kBool) return of_bool(op);
  if (!nccl_can_reduce(type, op)) {
    throw InvalidArgument(std::string("NCCL cannot reduce ") + to_string(type) + " with " +
                          to_string(op) + "; reduce a copy on the CPU, or one of another type");
  }
  if (op == ReduceOp::kAvg && !is_floating_point(type)) {
    return {type, ReduceOp::kSum, true};
  }
  return {type, op};
}

}  // namespace chainmail::ops
