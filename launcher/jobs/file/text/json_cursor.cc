// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/json_cursor.h"

#include <algorithm>
#include <cstdint>

namespace chainmail::launch {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '+' || c == '-' || c == '.';
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// Bytes of the character that begins with this one; 0: none does.
std::size_t utf8_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

bool is_utf8_character(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  std::uint32_t value = bytes.size() == 1 ? first : first & (0xffU >> (bytes.size() + 1));
  for (const char c : bytes.substr(1)) {
    if (!continues_character(c)) return false;
    value = value << 6U | (static_cast<unsigned char>(c) & 0x3fU);
  }
  // What a shorter form exists for, halves of UTF-16's pairs, and what is beyond Unicode.
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return value >= kLeast[bytes.size()] && (value < 0xd800 || value > 0xdfff) && value <= 0x10ffff;
}

}  // namespace

JsonCursor::JsonCursor(std::string_view text) : text_(text) {
  if (text.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

void JsonCursor::advance(std::size_t bytes) {
  const std::size_t end = at_ + std::min(bytes, text_.size() - at_);
  for (; at_ < end; ++at_) {
    if (text_[at_] == '\n') {
      place_ = {place_.line + 1, 1};
    } else if (!continues_character(text_[at_])) {
      ++place_.column;
    }
  }
}

void JsonCursor::advance_to(std::size_t offset) {
  if (offset > at_) advance(offset - at_);
}

bool JsonCursor::skip_comment() {
  const std::string_view rest = text_.substr(at_);
  if (rest.starts_with("//")) {
    advance(std::min(rest.find_first_of("\r\n"), rest.size()));
    return true;
  }
  if (!rest.starts_with("/*")) return false;
  const std::size_t end = rest.find("*/", 2);
  advance(end == std::string_view::npos ? rest.size() : end + 2);
  return true;
}

void JsonCursor::skip_blanks(bool separators) {
  while (!is_at_end()) {
    const char c = next();
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || (separators && (c == ',' || c == ':'))) {
      advance(1);
    } else if (!skip_comment()) {
      return;
    }
  }
}

std::string_view JsonCursor::word() const {
  std::size_t end = at_;
  while (end < text_.size() && is_in_word(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

void JsonCursor::skip_token() {
  const std::string_view text = word();
  std::size_t end = at_ + std::max<std::size_t>(text.size(), 1);
  // A number that begins with 0 ends there or has a fraction.
  const std::size_t zero = text.starts_with("-0") ? 1 : 0;
  const bool is_cut = text.substr(zero).starts_with('0') && text.size() > zero + 1 &&
                      text[zero + 1] >= '0' && text[zero + 1] <= '9';
  if (is_cut) end = at_ + zero + 1;
  if (next() == '"') {
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2U : 1U;
    ++end;
  }
  advance(end - at_);
}

std::size_t find_bad_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(static_cast<unsigned char>(text[at]));
    if (length == 0 || length > text.size() - at || !is_utf8_character(text.substr(at, length))) {
      return at;
    }
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace chainmail::launch
