// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which message sizes to measure, in nccl-tests' words. Pure functions.

#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace chainmail::bench {

/// "4", "64K", "25M", "1G" (powers of 1024). Throws InvalidArgument.
[[nodiscard]] std::size_t parse_bytes(std::string_view text);

/// "4,25M". Throws InvalidArgument.
[[nodiscard]] std::vector<std::size_t> parse_size_list(std::string_view text);

/// first, first * factor, ... up to last. Throws InvalidArgument for a factor below 2 or an empty
/// range.
[[nodiscard]] std::vector<std::size_t> size_range(std::size_t first, std::size_t last,
                                                  std::size_t factor);

}  // namespace chainmail::bench
