// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/hidden_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/job/text.h"
#include "launcher/output/line_splitter.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kCutMark = LastLines::kCutMark;
// Fewer bytes of a value tell next to nothing of it.
constexpr std::size_t kLeastCutBytes = 4;

// Of what a line that is shown leaves out (line_splitter.h); what a carriage return has in front of
// it is a line of its own here.
std::string shown_part(std::string_view line) {
  std::string part;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t' || (byte >= 0x20 && byte != 0x7f)) part += c;
  }
  return part;
}

std::string in_json(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\t') {
      text += "\\t";
    } else {
      text += c;
    }
  }
  return text;
}

void replace_value(std::string& text, const std::string& value, const std::string& name) {
  if (value.size() < kLeastHiddenBytes) return;
  for (std::size_t at = text.find(value); at != std::string::npos; at = text.find(value, at)) {
    text.replace(at, value.size(), "[" + name + "]");
    at += name.size() + 2;
  }
}

// For each prefix of the value, the longest shorter one that it ends with.
std::vector<std::size_t> shorter_prefixes(std::string_view value) {
  std::vector<std::size_t> shorter(value.size(), 0);
  for (std::size_t at = 1; at < value.size(); ++at) {
    std::size_t length = shorter[at - 1];
    while (length > 0 && value[at] != value[length]) length = shorter[length - 1];
    shorter[at] = length + (value[at] == value[length] ? 1U : 0U);
  }
  return shorter;
}

// The beginning of a value, where the line was cut in it. One pass, however long both are.
void replace_cut_value(std::string& text, const std::string& value, const std::string& name) {
  if (value.size() < kLeastHiddenBytes || text.find(kCutMark) == std::string::npos) return;
  const std::vector<std::size_t> shorter = shorter_prefixes(value);
  std::string out;
  std::size_t length = 0;  // of the value's prefix that the text up to here ends with
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (length >= kLeastCutBytes && text.compare(at, kCutMark.size(), kCutMark) == 0) {
      out.resize(out.size() - length);
      out += "[" + name + "]";
      length = 0;
    }
    while (length > 0 && (length == value.size() || text[at] != value[length])) {
      length = shorter[length - 1];
    }
    length += text[at] == value[length] ? 1U : 0U;
    out += text[at];
  }
  text = std::move(out);
}

// Lines are said one by one.
std::vector<HiddenValue> pieces_of(const std::vector<HiddenValue>& hidden) {
  std::vector<HiddenValue> pieces;
  for (const HiddenValue& secret : hidden) {
    std::string lines = secret.value;
    std::replace(lines.begin(), lines.end(), '\r', '\n');
    for (const std::string& line : split(lines, '\n')) {
      for (const std::string& form : {line, shown_part(line), in_json(shown_part(line))}) {
        const bool is_new = pieces.empty() || pieces.back().value != form;
        if (is_new) pieces.push_back({secret.name, form});
      }
    }
  }
  // One may be a part of another.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.value.size() > b.value.size(); });
  return pieces;
}

}  // namespace

std::string without_values(std::string text, const std::vector<HiddenValue>& hidden) {
  const std::vector<HiddenValue> pieces = pieces_of(hidden);
  for (const HiddenValue& piece : pieces) replace_value(text, piece.value, piece.name);
  for (const HiddenValue& piece : pieces) replace_cut_value(text, piece.value, piece.name);
  return text;
}

}  // namespace chainmail::launch
