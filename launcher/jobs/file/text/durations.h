// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How long something may take, as both forms of job files write it. Pure functions, thread-safe.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace chainmail::launch {

/// Nothing is longer.
inline constexpr std::chrono::hours kLongestDuration{24 * 365};

/// "90", "90s", "30m", "1.5h", "7d", "250ms": seconds where no unit stands. Nothing for another
/// text, and for what is longer than a year.
[[nodiscard]] std::optional<std::chrono::milliseconds> duration_in(std::string_view text);

/// A number of seconds as JSON has them: "90", "1.5", "1e3". Nothing as above.
[[nodiscard]] std::optional<std::chrono::milliseconds> duration_of_number(std::string_view number);

/// Batch AI's: ISO 8601's "P7D", "PT12H", "P1DT2H", "P2W"; .NET's "7.00:00:00", "00:10:00", with
/// fractions; Python's "7 days, 0:00:00". Nothing for another text, and for years and months, whose
/// lengths differ.
[[nodiscard]] std::optional<std::chrono::milliseconds> batch_ai_duration_in(std::string_view text);

/// What duration_in() reads as this, in the largest unit that it is a whole number of: "7d", "90s".
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

}  // namespace chainmail::launch
