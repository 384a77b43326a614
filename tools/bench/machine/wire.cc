// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/machine/wire.h"

#include <fstream>
#include <sstream>
#include <string>

namespace chainmail::bench {

std::uint64_t bytes_sent() {
  std::ifstream file("/proc/self/net/dev");
  std::ostringstream text;
  text << file.rdbuf();
  return sum_bytes_sent(text.str());
}

std::uint64_t sum_bytes_sent(std::string_view net_dev) {
  std::uint64_t sum = 0;
  std::istringstream lines{std::string(net_dev)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(' ');
    if (line.compare(begin, colon - begin, "lo") == 0) continue;
    // Eight columns of what was received come first.
    std::istringstream columns(line.substr(colon + 1));
    std::uint64_t value = 0;
    int column = 0;
    while (column < 9 && columns >> value) ++column;
    if (column == 9) sum += value;
  }
  return sum;
}

}  // namespace chainmail::bench
