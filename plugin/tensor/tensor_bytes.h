// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors as flat memory: what may be handed to the engine, packing of lists and strided tensors,
// fingerprints of shapes and counts.
//
// Thread-safe; pure except for the tensors themselves. Nothing here communicates.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace chainmail::internal {

/// What keeps `tensor` from being sent, as the end of a sentence ("is undefined"); empty for a
/// dense tensor.
[[nodiscard]] std::string why_not_dense(const at::Tensor& tensor);
/// The same; empty for a dense CPU tensor.
[[nodiscard]] std::string why_not_dense_cpu(const at::Tensor& tensor);

/// What keeps results from being written to `tensor`: elements that share memory (expanded ones).
[[nodiscard]] std::string why_not_writable(const at::Tensor& tensor);

/// True when the elements lie in memory in logical order, as values (no lazy conjugate).
[[nodiscard]] bool is_flat(const at::Tensor& tensor);

/// `tensor`, or a copy where torch has left a conjugate or a negation for later.
[[nodiscard]] at::Tensor resolved(const at::Tensor& tensor);

/// Tells autograd that the tensor's memory was written.
void mark_written(const at::Tensor& tensor);

[[nodiscard]] std::int64_t total_elements(at::TensorList tensors);

/// The elements of all tensors in order: the tensor itself when there is one and it is flat, else a
/// copy.
[[nodiscard]] at::Tensor pack(at::TensorList tensors);

/// The same, but without the values: for results.
[[nodiscard]] at::Tensor pack_empty(at::TensorList tensors);

/// The same into `flat`, which has as many elements of the same type.
void pack_into(const at::Tensor& flat, at::TensorList tensors);

/// Copies flat elements back into the tensors they came from. No gradient is recorded.
void unpack(const at::Tensor& flat, at::TensorList tensors);

/// The same on two ranks exactly when shapes and types agree position by position (except for hash
/// collisions).
[[nodiscard]] std::uint32_t hash_shapes(at::TensorList tensors) noexcept;

/// The same for operations on elements in order, whatever the shape: there are as many tensors, and
/// position by position as many elements of one type.
[[nodiscard]] std::uint32_t hash_counts(at::TensorList tensors) noexcept;

/// "[784, 1000], [1000], ... (12 tensors)" for messages; with types where the engine does not say
/// them.
[[nodiscard]] std::string describe_shapes(at::TensorList tensors);

}  // namespace chainmail::internal
