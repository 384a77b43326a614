// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The last lines of a text that comes in pieces, for the message about a rank that failed. Long
// lines are cut between two UTF-8 characters. Not thread-safe.

#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace chainmail::launch {

class LastLines {
 public:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 4096;

  void append(std::string_view text);
  [[nodiscard]] bool is_empty() const noexcept { return lines_.empty() && open_.empty(); }
  /// Each line behind "\n  | "; what shows nothing (control characters) is left out.
  [[nodiscard]] std::string quoted() const;

 private:
  void add(std::string_view part);
  void end_line();

  std::deque<std::string> lines_;
  std::string open_;
  bool is_cut_ = false;
};

}  // namespace chainmail::launch
