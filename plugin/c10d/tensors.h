// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors as flat memory: checks, packing of lists and strided tensors, fingerprints of shapes.
//
// Thread-safe (pure, but for the tensors themselves).

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chainmail::internal {

/// Refuses, in TORCH_CHECK's way, what is not a dense CPU tensor, and lists of mixed types.
/// `what` names the operation.
void check_tensors(at::TensorList tensors, const char* what);

/// check_tensors for the one tensor of a c10d list.
const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what);

/// Refuses tensors whose elements share memory (expanded ones): nothing can be written to them.
void check_writable(at::TensorList tensors, const char* what);

/// True when the elements lie in memory in logical order, as values (no lazy conjugate).
[[nodiscard]] bool is_flat(const at::Tensor& tensor);

[[nodiscard]] std::int64_t total_elements(at::TensorList tensors);

/// The elements of all tensors in order: the tensor itself when there is one and it is flat, else a
/// copy.
[[nodiscard]] at::Tensor pack(at::TensorList tensors);

/// The same, but without the values: for results.
[[nodiscard]] at::Tensor pack_empty(at::TensorList tensors);

/// Copies flat elements back into the tensors they came from. No gradient is recorded.
void unpack(const at::Tensor& flat, at::TensorList tensors);

/// Equal for lists of equal shapes and type.
[[nodiscard]] std::uint32_t hash_shapes(at::TensorList tensors) noexcept;

/// "[3, 4] float32" or "[3, 4], [4] float32".
[[nodiscard]] std::string describe_shapes(at::TensorList tensors);

}  // namespace chainmail::internal
