// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
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

// JSON's texts are YAML's in double quotes; several lines are easier to read as they are.
std::string yaml_scalar(const YamlSource& value, const std::string& indent) {
  const bool is_lines =
      value.is_string() && value.get_ref<const std::string&>().find('\n') != std::string::npos;
  if (!is_lines) return value.dump(-1, ' ', false, YamlSource::error_handler_t::replace);
  const std::string& text = value.get_ref<const std::string&>();
  const bool is_literal =
      text.back() == '\n' && text.front() != ' ' && text.front() != '\n' &&
      text.find("\n\n", text.size() - std::min<std::size_t>(text.size(), 2)) == std::string::npos &&
      std::all_of(text.begin(), text.end(),
                  [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); });
  if (!is_literal) return value.dump(-1, ' ', false, YamlSource::error_handler_t::replace);
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
      const std::string name = is_plain_key(key) ? key : YamlSource(key).dump();
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
