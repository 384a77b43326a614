// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Refusals (c10::Error) of tensors that cannot be communicated.
//
// Pure functions. `what` names the operation in the message, such as "allreduce".

#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace chainmail::internal {

/// Refuses what is not a dense CPU tensor, lists of mixed types, and empty lists.
void check_tensors(at::TensorList tensors, const char* what);

/// check_tensors for the one tensor of a c10d list.
const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what);

/// Refuses all but one list of `count` tensors on one rank; `which` says which, such as "output".
void check_list_per_rank(const std::vector<std::vector<at::Tensor>>& lists, std::size_t count,
                         const char* what, const char* which);

/// Refuses also tensors whose elements share memory (expanded ones): nothing can be written to
/// them.
void check_writable(at::TensorList tensors, const char* what);

/// Refuses tensors that have not the shape and type of `like`.
void check_like(at::TensorList tensors, const at::Tensor& like, const char* what);

/// True when all have as many elements as the first.
[[nodiscard]] bool have_one_count(at::TensorList tensors);

/// Refuses an output whose type is not the input's.
void check_same_type(const at::Tensor& input, const at::Tensor& output, const char* what);

}  // namespace chainmail::internal
