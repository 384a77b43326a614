// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The global 2-norm of gradients on the CPU, with bits that do not depend on who adds up which part
// of them: in float64, over blocks of each parameter, and the blocks one after the other.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

/// How many sums add_squares() writes for so many elements.
[[nodiscard]] std::size_t norm_blocks(std::size_t elements) noexcept;

/// The sum of squares of each block of kSliceUnit elements of `gradient`, which is on the CPU,
/// dense and of a floating-point type; elements in the order of memory.
void add_squares(const at::Tensor& gradient, std::span<double> sums);

/// Of gradients on the CPU, in this order.
[[nodiscard]] double norm_of(const std::vector<at::Tensor>& gradients);

/// Scales the gradients down to `max_norm`, as torch::nn::utils::clip_grad_norm_ does. 0: not.
void clip_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);

}  // namespace chainmail::internal
