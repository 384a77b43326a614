// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// In which order the elements of a tensor fill a row of memory: row by row, channels_last ... What
// is kept per element, in such rows, follows its elements when a parameter is laid out in another
// way.
//
// Pure functions.

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

struct MemoryLayout {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool operator==(const MemoryLayout&) const = default;
};

/// That of `tensor`; row by row where its elements do not fill a row.
[[nodiscard]] MemoryLayout layout_of(const at::Tensor& tensor);
/// Row by row, as contiguous() tensors have them.
[[nodiscard]] MemoryLayout contiguous_layout(at::IntArrayRef sizes);

/// The elements of `row`, which is one-dimensional and has them in the order of `from`, in that of
/// `to`: another row, or `row` itself. Both are of the same sizes.
[[nodiscard]] at::Tensor reordered(const at::Tensor& row, const MemoryLayout& from,
                                   const MemoryLayout& to);

}  // namespace chainmail::internal
