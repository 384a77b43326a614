// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Lines out of what a rank prints: whole ones, so that those of several ranks never mix, and the
// last of them, for the message about a rank that failed. Not thread-safe.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

/// The length of the longest prefix of at most `limit` bytes that does not end inside a UTF-8
/// character. Bytes that are no UTF-8 at all are cut at the limit.
[[nodiscard]] std::size_t whole_characters(std::string_view text, std::size_t limit);

/// Cuts output into pieces that end where a line ends.
class LineSplitter {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  /// A line longer than this is cut between two UTF-8 characters.
  static constexpr std::size_t kMaxPieceBytes = 65536;

  /// With `carriage_returns`, '\r' ends a piece too (progress bars on a terminal).
  LineSplitter(bool carriage_returns, Sink sink);

  void append(std::string_view bytes);
  /// Hands out the rest, which has no line end.
  void finish();

 private:
  void cut();

  bool carriage_returns_;
  Sink sink_;
  std::string pending_;
};

/// The last lines of a text that comes in pieces. Long lines are cut between two UTF-8 characters.
class LastLines {
 public:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 4096;
  /// Behind a line that was cut.
  static constexpr std::string_view kCutMark = " ...";

  void append(std::string_view text);
  [[nodiscard]] bool is_empty() const noexcept { return lines_.empty() && open_.empty(); }
  /// Each line behind "\n  | "; what shows nothing (control characters) is left out.
  [[nodiscard]] std::string quoted() const;

 private:
  void add(std::string_view part);
  void end_line();

  std::vector<std::string> lines_;  // a deque takes 600 bytes when it is empty
  std::string open_;
  bool is_cut_ = false;
};

}  // namespace chainmail::launch
