// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Texts cut, put together and read as numbers. Pure functions, thread-safe.

#pragma once

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace chainmail::launch {

using internal::whole_number;

/// The pieces between separators, empty ones too.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// Texts or numbers with `separator` between them.
template <typename Items>
[[nodiscard]] std::string joined(const Items& items, const char* separator) {
  std::ostringstream text;
  for (const char* between = ""; const auto& item : items) {
    text << std::exchange(between, separator) << item;
  }
  return text.str();
}

/// "n1, n2 and 7 more": eight at most.
[[nodiscard]] inline std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kMost = 8;
  const std::size_t shown = std::min(names.size(), kMost);
  const std::size_t more = names.size() - shown;
  names.resize(shown);
  return joined(names, ", ") + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

/// "1.5 s".
[[nodiscard]] inline std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << static_cast<double>(time.count()) / 1000 << " s";
  return text.str();
}

}  // namespace chainmail::launch
