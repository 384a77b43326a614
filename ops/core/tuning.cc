// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/tuning.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::ops {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view take_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = std::min(line.find_first_of(kBlank, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

std::size_t parse_bytes(std::string_view word) {
  const auto bytes = internal::whole_number<std::size_t>(word);
  if (!bytes) throw InvalidArgument("\"" + std::string(word) + "\" is not a number of bytes");
  return *bytes;
}

TuningRow parse_row(std::string_view bytes, std::string_view rest, const Tuning& before) {
  TuningRow row;
  row.from_bytes = parse_bytes(bytes);
  const std::string_view name = take_word(rest);
  row.algorithm = parse_algorithm(name);
  if (const std::string_view extra = take_word(rest); !extra.empty()) {
    throw InvalidArgument("\"" + std::string(extra) + "\" after the algorithm");
  }
  if (row.algorithm != Algorithm::kFlat && row.algorithm != Algorithm::kHierarchical &&
      row.algorithm != Algorithm::kTwoDimensional) {
    throw InvalidArgument(std::string(name) +
                          " is not a choice between nodes; write flat, hierarchical or "
                          "two_dimensional");
  }
  if (before.empty() ? row.from_bytes != 0 : row.from_bytes <= before.back().from_bytes) {
    throw InvalidArgument("rows must begin at 0 bytes and ascend");
  }
  return row;
}

}  // namespace

Tuning parse_tuning(std::string_view text, const std::string& name) {
  Tuning tuning;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view bytes = take_word(line);
    if (bytes.empty()) continue;
    try {
      tuning.push_back(parse_row(bytes, line, tuning));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(name + ", line " + std::to_string(number) + ": " + error.what());
    }
  }
  if (tuning.empty()) {
    throw InvalidArgument(name + ": no rows; write lines such as \"65536 two_dimensional\"");
  }
  return tuning;
}

}  // namespace chainmail::ops
