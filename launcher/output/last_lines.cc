// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/last_lines.h"

#include <algorithm>
#include <utility>

#include "launcher/output/line_splitter.h"

namespace chainmail::launch {
namespace {

// A carriage return starts the line anew on a terminal; the rest could change the terminal.
std::string shown(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (const std::size_t start = line.rfind('\r'); start != std::string_view::npos) {
    line.remove_prefix(start + 1);
  }
  std::string out;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t' || (byte >= 0x20 && byte != 0x7f)) out += c;
  }
  return out;
}

}  // namespace

void LastLines::append(std::string_view text) {
  // Of a long text only the end matters.
  std::size_t begin = text.size();
  for (std::size_t lines = 0; begin > 0 && lines <= kMaxLines; ++lines) {
    begin = text.rfind('\n', begin - 1);
    if (begin == std::string_view::npos) begin = 0;
  }
  if (begin > 0) {
    open_.clear();
    is_cut_ = false;
    text.remove_prefix(begin + 1);
  }
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    add(text.substr(0, end));
    end_line();
    text.remove_prefix(end + 1);
  }
  add(text);
}

void LastLines::add(std::string_view part) {
  if (is_cut_) return;
  const std::string_view kept =
      part.substr(0, whole_characters(part, kMaxLineBytes - open_.size()));
  open_ += kept;
  if (kept.size() == part.size()) return;
  open_ += " ...";
  is_cut_ = true;
}

void LastLines::end_line() {
  lines_.push_back(std::exchange(open_, {}));
  is_cut_ = false;
  if (lines_.size() > kMaxLines) lines_.pop_front();
}

std::string LastLines::quoted() const {
  std::string out;
  for (const std::string& line : lines_) out += "\n  | " + shown(line);
  if (!open_.empty()) out += "\n  | " + shown(open_);
  return out;
}

}  // namespace chainmail::launch
