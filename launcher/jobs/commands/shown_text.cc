// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/shown_text.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace chainmail::launch {
namespace {

struct Character {
  std::size_t bytes = 0;  // 0: no UTF-8
  char32_t code = 0;
};

// The first one of a text that is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char head = byte(0);
  if (head < 0x80) return {1, head};
  const std::size_t bytes = head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : 2;
  if (head < 0xc2 || head > 0xf4 || text.size() < bytes) return {};
  char32_t code = head & (0xffU >> (bytes + 1));
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(at) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {bytes, code};
}

// What a terminal acts upon, or what has it write from right to left.
bool is_command(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

}  // namespace

std::string shown_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(next.bytes, 1);
    if (next.code == '\n' || next.code == '\t') {
      out += ' ';
    } else if (next.bytes == 0 || is_command(next.code)) {
      out += '?';
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::size_t columns_of(std::string_view utf8) noexcept {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

std::string cut_to(std::string_view utf8, std::size_t columns) {
  constexpr std::string_view kDots = "...";
  if (columns_of(utf8) <= columns) return std::string(utf8);
  const std::size_t kept = columns - std::min(columns, kDots.size());
  std::size_t end = 0;
  for (std::size_t seen = 0; end < utf8.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(utf8[end]) & 0xc0U) != 0x80U;
    if (begins && seen++ == kept) break;
  }
  return std::string(utf8.substr(0, end)) + std::string(kDots.substr(0, columns));
}

std::string age_text(std::int64_t then_ms, std::int64_t now_ms) {
  const std::int64_t seconds = std::max<std::int64_t>((now_ms - then_ms) / 1000, 0);
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 60 * 60) return std::to_string(seconds / 60) + "m";
  constexpr std::int64_t kHour = 60 * 60;
  if (seconds < 48 * kHour) return std::to_string(seconds / kHour) + "h";
  return std::to_string(seconds / (24 * kHour)) + "d";
}

std::string time_text(std::int64_t ms) {
  const auto seconds = static_cast<time_t>(ms / 1000);
  tm parts{};
  std::array<char, 32> text{};
  if (ms <= 0 || gmtime_r(&seconds, &parts) == nullptr ||
      strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return "-";
  }
  return text.data();
}

std::int64_t utc_now_ms() noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string table_text(const std::vector<TableRow>& rows, std::size_t most_columns) {
  constexpr std::size_t kBetween = 2;
  std::vector<TableRow> cells = rows;
  std::vector<std::size_t> widths;
  for (TableRow& row : cells) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = shown_text(row[i]);
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string text;
  for (const TableRow& row : cells) {
    std::string line;
    std::size_t column = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool is_last = i + 1 == row.size();
      // So narrow a terminal gets what it gets.
      const bool is_cut = is_last && most_columns > column + 8;
      line += is_cut ? cut_to(row[i], most_columns - column) : row[i];
      if (is_last) break;
      line.append(widths[i] - columns_of(row[i]) + kBetween, ' ');
      column += widths[i] + kBetween;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace chainmail::launch
