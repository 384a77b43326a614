// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the training layer says, as InvalidArgument, of tensors that cannot be communicated.
//
// Pure functions.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "ops/types.h"

namespace chainmail::internal {

/// The engine's name for `type`; throws InvalidArgument that names `operation`.
[[nodiscard]] ops::DataType engine_type(c10::ScalarType type, const char* operation);

/// Throws InvalidArgument unless all tensors are defined, dense, on one device, and the elements of
/// none overlap each other.
void check_dense(at::ArrayRef<at::Tensor> tensors, const char* operation);

}  // namespace chainmail::internal
