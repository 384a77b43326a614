// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/line_splitter.h"

#include <utility>

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

std::size_t whole_characters(std::string_view text, std::size_t limit) {
  if (text.size() < limit) return text.size();
  const auto is_continuation = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0U) == 0x80U;
  };
  std::size_t lead = limit;
  while (lead > 0 && limit - lead < 4 && is_continuation(lead - 1)) --lead;
  if (lead == 0 || limit - lead > 3) return limit;
  const auto first = static_cast<unsigned char>(text[lead - 1]);
  std::size_t length = 1;
  if ((first & 0xe0U) == 0xc0U) length = 2;
  if ((first & 0xf0U) == 0xe0U) length = 3;
  if ((first & 0xf8U) == 0xf0U) length = 4;
  const std::size_t begin = lead - 1;
  return begin + length > limit ? begin : limit;
}

LineSplitter::LineSplitter(bool carriage_returns, Sink sink)
    : carriage_returns_(carriage_returns), sink_(std::move(sink)) {}

void LineSplitter::append(std::string_view bytes) {
  pending_ += bytes;
  cut();
}

void LineSplitter::cut() {
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const std::string_view window = rest.substr(0, kMaxPieceBytes);
    const std::size_t end = window.find_last_of(carriage_returns_ ? "\r\n" : "\n");
    std::size_t length = 0;
    if (end != std::string_view::npos) {
      length = end + 1;
    } else if (rest.size() >= kMaxPieceBytes) {
      length = whole_characters(rest, kMaxPieceBytes);
    } else {
      break;
    }
    sink_(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

void LineSplitter::finish() {
  if (!pending_.empty()) sink_(pending_);
  pending_.clear();
}

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
  open_ += kCutMark;
  is_cut_ = true;
}

void LastLines::end_line() {
  lines_.push_back(std::exchange(open_, {}));
  is_cut_ = false;
  if (lines_.size() > kMaxLines) lines_.erase(lines_.begin());
}

std::string LastLines::quoted() const {
  std::string out;
  for (const std::string& line : lines_) out += "\n  | " + shown(line);
  if (!open_.empty()) out += "\n  | " + shown(open_);
  return out;
}

}  // namespace chainmail::launch
