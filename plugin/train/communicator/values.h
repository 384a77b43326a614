// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors as type, shape and bytes.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

inline constexpr std::int8_t kNoTensor = -1;

struct TensorShape {
  std::int8_t type = kNoTensor;  ///< a c10::ScalarType
  std::vector<std::int64_t> sizes;

  static constexpr char kObjectName[] = "shape";
  static auto fields(auto& self) { return std::tie(self.type, self.sizes); }
};

/// What keeps the values of `tensor` from being moved, as the end of a sentence; empty for a dense
/// CPU tensor, whose elements may share memory.
[[nodiscard]] std::string why_not_movable(const at::Tensor& tensor);
[[nodiscard]] TensorShape shape_of(const at::Tensor& tensor);
/// The elements in logical order, contiguous; `tensor` itself where it is that already. Throws
/// InvalidArgument that names `operation`.
[[nodiscard]] at::Tensor plain_values(const at::Tensor& tensor, const char* operation);

/// Throws MismatchError for a type or shape that cannot be.
[[nodiscard]] std::size_t bytes_of(const TensorShape& shape);
[[nodiscard]] at::Tensor empty_of(const TensorShape& shape);

}  // namespace chainmail::internal
