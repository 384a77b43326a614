// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A place in a JSON text that moves from token to token, for a parser that does not say where its
// tokens stand. One thread.

#pragma once

#include <cstddef>
#include <string_view>

#include "launcher/jobs/file/text/json_text.h"

namespace chainmail::launch {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text);

  /// Over white space and comments, and with `separators` over ',' and ':' too.
  void skip_blanks(bool separators);
  [[nodiscard]] bool is_at_end() const noexcept { return at_ == text_.size(); }
  /// 0 at the end.
  [[nodiscard]] char next() const noexcept { return is_at_end() ? '\0' : text_[at_]; }
  [[nodiscard]] TextPlace place() const noexcept { return place_; }
  void advance(std::size_t bytes);
  /// To that byte of the text, if it is behind this place.
  void advance_to(std::size_t offset);

  /// Letters, digits and what numbers have beside them, from here on.
  [[nodiscard]] std::string_view word() const;
  /// Over the token that begins here: a text, a number, a word or a bracket.
  void skip_token();

 private:
  bool skip_comment();

  std::string_view text_;
  std::size_t at_ = 0;
  TextPlace place_{1, 1};
};

/// The offset of the first byte that belongs to no UTF-8 character; npos: there is none.
[[nodiscard]] std::size_t find_bad_utf8(std::string_view text);

}  // namespace chainmail::launch
