// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/watched_hosts.h"

#include <algorithm>

namespace chainmail::launch {
namespace {

void check_end(std::string_view text, const std::string& where) {
  if (text.empty() || text.back() == '\n') return;
  const std::size_t begin = text.rfind('\n') + 1;  // 0 where there is none
  const auto line = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  Cursor{where, line}.refuse(text.size() - begin + 1,
                             "the last line has no end, so it may not be whole yet; end it with "
                             "a new line");
}

bool names_a_host(std::string_view text) {
  // Comments may be anywhere; whether something stands beside them the parser knows best.
  return text.find_first_not_of(" \t\r\n") != std::string_view::npos;
}

}  // namespace

std::vector<Host> parse_watched_hosts(std::string_view text, const std::string& where) {
  check_end(text, where);
  if (!names_a_host(text)) return {};
  return parse_hostfile(text, where, kWatchedHostsRules);
}

}  // namespace chainmail::launch
