// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Chance of tests: the same numbers with every standard library.

#pragma once

#include <cstdint>
#include <random>

namespace chainmail::test {

/// 0 to bound - 1.
inline std::uint32_t draw(std::mt19937& random, std::uint32_t bound) {
  return static_cast<std::uint32_t>(random() % bound);
}

}  // namespace chainmail::test
