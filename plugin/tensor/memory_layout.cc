// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/tensor/memory_layout.h"

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/grad_mode.h>

namespace chainmail::internal {

MemoryLayout layout_of(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return contiguous_layout(tensor.sizes());
  return {tensor.sizes().vec(), tensor.strides().vec()};
}

MemoryLayout contiguous_layout(at::IntArrayRef sizes) {
  return {sizes.vec(), at::detail::defaultStrides(sizes)};
}

at::Tensor reordered(const at::Tensor& row, const MemoryLayout& from, const MemoryLayout& to) {
  if (from == to) return row;
  const at::NoGradGuard no_grad;
  const at::Tensor ordered = at::empty_strided(to.sizes, to.strides, row.options());
  ordered.copy_(row.as_strided(from.sizes, from.strides));
  return ordered.as_strided({row.numel()}, {1});
}

}  // namespace chainmail::internal
