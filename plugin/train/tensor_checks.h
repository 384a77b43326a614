// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors as the engine sees them: element types, raw bytes, one hash over a list of shapes.
//
// Pure functions; none of them communicates.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "ops/types.h"

namespace chainmail::internal {

/// The engine's name for `type`; throws InvalidArgument that names `operation`.
[[nodiscard]] ops::DataType engine_type(c10::ScalarType type, const char* operation);

/// Throws InvalidArgument unless every tensor is a defined, dense CPU tensor whose elements do not
/// overlap each other.
void check_dense_cpu(at::ArrayRef<at::Tensor> tensors, const char* operation);

/// True when the elements lie in memory one after another, in order and as they are meant, so that
/// data_ptr() may be handed to the engine.
[[nodiscard]] bool is_plain(const at::Tensor& tensor);

/// Tells autograd that the memory was written behind its back.
void mark_written(const at::Tensor& tensor);

/// The same on two ranks exactly when shapes and dtypes agree position by position (but for hash
/// collisions).
[[nodiscard]] std::uint32_t shape_hash(at::ArrayRef<at::Tensor> tensors);

/// "[784, 1000] float32, [1000] float32, ... (6 tensors)" for messages.
[[nodiscard]] std::string describe_tensors(at::ArrayRef<at::Tensor> tensors);

}  // namespace chainmail::internal
