// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Our types and operations as those that NCCL has. Pure.

#pragma once

#include "ops/types.h"

namespace chainmail::ops {

/// What NCCL is asked for in place of (type, op).
struct NcclReduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool divides = false;  ///< the sum is divided by the ranks afterwards, toward zero
};

/// Throws InvalidArgument for what NCCL cannot do: int16, uint16, and bitwise operations of
/// integers.
[[nodiscard]] NcclReduction nccl_reduction(DataType type, ReduceOp op);

}  // namespace chainmail::ops
