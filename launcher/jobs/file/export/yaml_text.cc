// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launcher/jobs/file/export/export_targets.h"

namespace chainmail::launch {
namespace {

using YamlSource = nlohmann::ordered_json;

bool is_plain_key(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("./_").find(c) != std::string_view::npos;
  });
}

// The lead byte of `text` at `at` and those that follow it, if they are a character that JSON may
// have as it is and YAML may not, or takes for the end of a line: DEL, U+0080 to U+009F, U+2028,
// U+2029, U+FEFF, U+FFFE and U+FFFF.
std::string_view yaml_special(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 6> kWide = {"\xe2\x80\xa8", "\xe2\x80\xa9", "\xef\xbb\xbf",
                                                     "\xef\xbf\xbe", "\xef\xbf\xbf", "\x7f"};
  const std::string_view rest = text.substr(at);
  for (const std::string_view character : kWide) {
    if (rest.starts_with(character)) return character;
  }
  const bool is_control =
      rest.size() > 1 && rest[0] == '\xc2' && static_cast<unsigned char>(rest[1]) < 0xa0;
  return is_control ? rest.substr(0, 2) : std::string_view();
}

// "\uXXXX" of one of these.
std::string yaml_escape(std::string_view character) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(character[at]); };
  unsigned int code = byte(0);
  if (character.size() == 2) code = (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
  if (character.size() == 3)
    code = (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", code);
  return text;
}

// JSON's texts are YAML's in double quotes, but for some characters.
std::string in_yaml_quotes(const YamlSource& value) {
  const std::string json = value.dump(-1, ' ', false, YamlSource::error_handler_t::replace);
  std::string yaml;
  for (std::size_t at = 0; at < json.size();) {
    const std::string_view special = yaml_special(json, at);
    yaml += special.empty() ? std::string(1, json[at]) : yaml_escape(special);
    at += std::max<std::size_t>(special.size(), 1);
  }
  return yaml;
}

// Several lines are easier to read as they are.
std::string yaml_scalar(const YamlSource& value, const std::string& indent) {
  const bool is_lines =
      value.is_string() && value.get_ref<const std::string&>().find('\n') != std::string::npos;
  if (!is_lines) return in_yaml_quotes(value);
  const std::string& text = value.get_ref<const std::string&>();
  const bool is_literal =
      text.back() == '\n' && text.front() != ' ' && text.front() != '\n' &&
      text.find("\n\n", text.size() - std::min<std::size_t>(text.size(), 2)) == std::string::npos &&
      std::all_of(text.begin(), text.end(),
                  [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); });
  if (!is_literal) return in_yaml_quotes(value);
  std::string block = "|";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    block += "\n" + (end == at ? "" : indent + text.substr(at, end - at));
    at = end + 1;
  }
  return block;
}

void write_yaml(const YamlSource& value, const std::string& indent, std::string& out);

void write_yaml_member(const std::string& head, const YamlSource& value, const std::string& indent,
                       std::string& out) {
  if (!value.is_structured() || value.empty()) {
    out += head + " " + yaml_scalar(value, indent + "  ") + "\n";
    return;
  }
  out += head + "\n";
  write_yaml(value, indent + "  ", out);
}

void write_yaml(const YamlSource& value, const std::string& indent, std::string& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const std::string name = is_plain_key(key) ? key : in_yaml_quotes(YamlSource(key));
      write_yaml_member(indent + name + ":", member, indent, out);
    }
    return;
  }
  for (const YamlSource& item : value) {
    if (!item.is_object() || item.empty()) {
      write_yaml_member(indent + "-", item, indent, out);
      continue;
    }
    std::string lines;
    write_yaml(item, indent + "  ", lines);
    lines.replace(indent.size(), 1, "-");
    out += lines;
  }
}

}  // namespace

std::string yaml_of_json(const std::string& json) {
  std::string out;
  write_yaml(YamlSource::parse(json), "", out);
  return out;
}

}  // namespace chainmail::launch
