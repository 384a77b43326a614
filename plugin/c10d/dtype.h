// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Translates LibTorch's words into the engine's: element types, reductions.
//
// Pure functions. What the engine does not know is refused with TORCH_CHECK, as users of c10d
// expect.

#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ops/types.h"

namespace chainmail::internal {

/// `what` names the operation in the error, such as "allreduce".
[[nodiscard]] ops::DataType to_data_type(c10::ScalarType type, const char* what);

/// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR; PREMUL_SUM is the caller's affair.
[[nodiscard]] ops::ReduceOp to_reduce_op(const c10d::ReduceOp& op, const char* what);

}  // namespace chainmail::internal
