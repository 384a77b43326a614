// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/hidden_values.h"

#include <algorithm>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

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

}  // namespace

std::string without_values(std::string text, const std::vector<HiddenValue>& hidden) {
  std::vector<HiddenValue> pieces;
  for (const HiddenValue& secret : hidden) {
    // Lines are said one by one.
    for (const std::string& line : split(secret.value, '\n')) {
      pieces.push_back({secret.name, line});
      if (in_json(line) != line) pieces.push_back({secret.name, in_json(line)});
    }
  }
  // One may be a part of another.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.value.size() > b.value.size(); });
  for (const HiddenValue& piece : pieces) replace_value(text, piece.value, piece.name);
  return text;
}

}  // namespace chainmail::launch
