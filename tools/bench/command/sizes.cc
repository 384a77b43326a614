// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/command/sizes.h"

#include <charconv>
#include <string>

#include "base/error.h"

namespace chainmail::bench {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 40;

// How far a unit shifts; -1 for what is none.
int shift_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  if (unit == "K" || unit == "k") return 10;
  if (unit == "M" || unit == "m") return 20;
  if (unit == "G" || unit == "g") return 30;
  return -1;
}

}  // namespace

std::size_t parse_bytes(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const int shift = shift_of(text.substr(static_cast<std::size_t>(end - text.data())));
  if (error != std::errc{} || shift < 0 || number == 0 || number > (kLargest >> shift)) {
    throw InvalidArgument("\"" + std::string(text) +
                          "\" is no message size; sizes look like 4, 64K, 25M, 1G");
  }
  return number << shift;
}

std::vector<std::size_t> parse_size_list(std::string_view text) {
  std::vector<std::size_t> sizes;
  for (;;) {
    const std::size_t comma = text.find(',');
    sizes.push_back(parse_bytes(text.substr(0, comma)));
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::size_t> size_range(std::size_t first, std::size_t last, std::size_t factor) {
  if (factor < 2 || first > last) {
    throw InvalidArgument("no sizes from " + std::to_string(first) + " to " + std::to_string(last) +
                          " bytes in steps of factor " + std::to_string(factor));
  }
  std::vector<std::size_t> sizes;
  for (std::size_t size = first; size <= last; size *= factor) sizes.push_back(size);
  return sizes;
}

}  // namespace chainmail::bench
