// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/line_splitter.h"

#include <algorithm>
#include <utility>

namespace chainmail::launch {

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

}  // namespace chainmail::launch
