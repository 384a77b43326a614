// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory for slices of parameters, whose values differ by rank: what broadcasts parameters or
// averages gradients must be able to tell them from replicas.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

/// `count` zeros of a slice, one-dimensional on the CPU.
[[nodiscard]] at::Tensor make_slice(std::int64_t count, c10::ScalarType dtype);

/// Whether `tensor` lies in memory of make_slice().
[[nodiscard]] bool is_slice(const at::Tensor& tensor);

/// Throws InvalidArgument if it does: "`what`: 'name' is a slice ..., `instead`".
void refuse_slice(const std::string& name, const at::Tensor& tensor, const char* what,
                  const char* instead);

}  // namespace chainmail::internal
