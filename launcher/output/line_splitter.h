// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Cuts a rank's output into pieces that end where a line ends, so that lines of several ranks
// never mix. Not thread-safe.

#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace chainmail::launch {

/// The length of the longest prefix of at most `limit` bytes that does not end inside a UTF-8
/// character. Bytes that are no UTF-8 at all are cut at the limit.
[[nodiscard]] std::size_t whole_characters(std::string_view text, std::size_t limit);

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

}  // namespace chainmail::launch
