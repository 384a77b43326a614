// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The numbers of ranks that a job may have: --elastic MIN:MAX:MULTIPLE.
//
// Values; any thread.

#pragma once

#include <algorithm>
#include <cstdint>

namespace chainmail::membership {

struct SizeRange {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::uint32_t multiple = 1;  ///< every size is a multiple of it

  /// The largest allowed size that `available` members can make; 0 where there is none.
  [[nodiscard]] constexpr std::uint32_t fit(std::uint32_t available) const noexcept {
    const std::uint32_t size = std::min(available, max) / multiple * multiple;
    return size < min ? 0 : size;
  }

  static void fields(auto& archive, auto& range) {
    archive("min", range.min);
    archive("max", range.max);
    archive("multiple", range.multiple);
  }
};

}  // namespace chainmail::membership
