// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A file that somebody else writes, read once from its beginning, or from its last lines on:
// however late it comes, however it grows, also where it is replaced or cut. Not thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

class GrowingFile {
 public:
  /// `places`: where it may be; the first that is there counts. `last_lines`: only so many of what
  /// it holds when it is opened.
  explicit GrowingFile(std::vector<std::string> places,
                       std::optional<std::uint64_t> last_lines = std::nullopt);

  /// What comes next, at most 64 KiB, until the next call; empty: nothing for now. Throws
  /// SystemError for what is no file, and where it cannot be read.
  [[nodiscard]] std::string_view read();
  /// Has read() see all that others have written by now, also on network file systems.
  void look_anew() { file_.reset(); }

  /// Whether there has been such a file.
  [[nodiscard]] bool was_there() const noexcept { return was_there_; }
  [[nodiscard]] const std::vector<std::string>& places() const noexcept { return places_; }

 private:
  bool open();
  bool has_more();
  ssize_t read_block();

  std::vector<std::string> places_;
  std::optional<std::uint64_t> last_lines_;
  std::string path_;
  internal::UniqueFd file_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  std::uint64_t at_ = 0;
  bool was_there_ = false;
  std::string block_;
};

/// Where the last `lines` lines of an open file begin; what follows the last line's end is a line.
[[nodiscard]] std::uint64_t start_of_last_lines(int file, std::uint64_t size, std::uint64_t lines);

/// Writes all of it, however slow its reader is; `what` names the descriptor in the message of the
/// SystemError.
void write_out(int out, std::string_view bytes, const std::string& what);

}  // namespace chainmail::launch
