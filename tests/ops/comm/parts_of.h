// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The parts of one buffer, by rank.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace chainmail::ops {

/// Part r is [byte_bounds[r], byte_bounds[r + 1]) of one buffer.
template <typename Byte>
[[nodiscard]] std::vector<std::span<Byte>> parts_of(Byte* data,
                                                    std::span<const std::size_t> byte_bounds) {
  std::vector<std::span<Byte>> parts;
  for (std::size_t r = 0; r + 1 < byte_bounds.size(); ++r) {
    parts.emplace_back(data + byte_bounds[r], byte_bounds[r + 1] - byte_bounds[r]);
  }
  return parts;
}

}  // namespace chainmail::ops
