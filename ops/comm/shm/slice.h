// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who owns which elements of a buffer.

#pragma once

#include <algorithm>
#include <cstddef>

namespace chainmail::ops::shm {

struct Slice {
  std::size_t begin;
  std::size_t end;
  std::size_t length() const noexcept { return end - begin; }
};

/// Rank `index`'s share of `count` elements of `size` bytes. Slices begin on cache lines, so that
/// two owners never write one line.
[[nodiscard]] inline Slice share(std::size_t count, std::size_t size, std::size_t index,
                                 std::size_t parts) {
  constexpr std::size_t kLine = 64;
  const std::size_t unit = kLine / size;
  const std::size_t length = (count + parts * unit - 1) / (parts * unit) * unit;
  const std::size_t begin = std::min(index * length, count);
  return {begin, std::min(begin + length, count)};
}

}  // namespace chainmail::ops::shm
