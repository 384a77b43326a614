// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/targets/line_prefix.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace chainmail::launch {

std::string time_prefix() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%F %T", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03d ", static_cast<int>(since.count() % 1000));
  return std::string(text.data(), length) + fraction.data();
}

std::string with_prefix(const std::string& prefix, std::string_view text, bool continues_line) {
  std::string out;
  bool at_begin = !continues_line;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find_first_of("\r\n", begin);
    if (end == std::string_view::npos) end = text.size() - 1;
    // CR LF is one line end.
    if (text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n') ++end;
    if (at_begin) out += prefix;
    out.append(text.substr(begin, end + 1 - begin));
    begin = end + 1;
    at_begin = true;
  }
  return out;
}

}  // namespace chainmail::launch
