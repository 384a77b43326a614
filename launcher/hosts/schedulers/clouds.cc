// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Azure Batch, Batch AI and SageMaker: names without slots.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/hosts/host_text.h"
#include "launcher/hosts/schedulers/schedulers.h"

namespace chainmail::launch {
namespace {

using Json = nlohmann::json;

struct Place {
  std::size_t line;
  std::size_t column;
};

// Of a byte, counted from 0.
Place place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  return {line, before.size() - (before.rfind('\n') + 1) + 1};  // npos + 1 is 0
}

Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const Place place = place_of(text, error.byte == 0 ? 0 : error.byte - 1);
    Cursor{where, place.line}.refuse(place.column, "this is not JSON");
  } catch (const Json::out_of_range&) {
    Cursor{where, 1}.refuse(1, "this JSON has a number that is too large");
  }
}

std::vector<Host> hosts_of(const Json& names, std::string_view text, const std::string& where) {
  const std::string wanted = "this is not a list of names such as [\"algo-1\",\"algo-2\"]";
  if (!names.is_array() || names.empty()) Cursor{where, 1}.refuse(1, wanted);
  HostCollector hosts;
  std::set<std::string> known;
  for (const Json& name : names) {
    if (!name.is_string()) Cursor{where, 1}.refuse(1, wanted);
    const auto value = name.get<std::string>();
    // JSON's values have no place; the first mention of the name has.
    const std::size_t at = text.find('"' + value + '"');
    const Place place = place_of(text, at == std::string_view::npos ? 0 : at + 1);
    const Cursor cursor{where, place.line};
    if (!known.insert(value).second)
      cursor.refuse(place.column, in_quotes(value) + " is listed twice");
    hosts.add(cursor, place.column, named_host(cursor, {value, place.column}));
  }
  return hosts.take();
}

}  // namespace

std::vector<Host> parse_azure_list(std::string_view text, const std::string& where,
                                   char separator) {
  HostCollector hosts;
  const Cursor cursor{where, 1};
  for (const Token& token : separated_by(separator, text)) {
    hosts.add(cursor, token.column, named_host(cursor, token));
  }
  return hosts.take();
}

std::vector<Host> parse_batch_ai_workers(std::string_view text, const std::string& where) {
  HostCollector hosts;
  const Cursor cursor{where, 1};
  for (const Token& token : separated_by(',', text)) {
    const std::size_t colon = token.text.find(':');
    if (colon != std::string_view::npos) {
      (void)parse_number(cursor, {token.text.substr(colon + 1), token.column + colon + 1}, "port",
                         1, 65535, "");
    }
    hosts.add(cursor, token.column,
              named_host(cursor, {token.text.substr(0, colon), token.column}));
  }
  return hosts.take();
}

std::vector<Host> parse_sagemaker_hosts(std::string_view text, const std::string& where) {
  return hosts_of(parse_json(text, where), text, where);
}

std::vector<Host> parse_sagemaker_config(std::string_view text, const std::string& where) {
  const Json config = parse_json(text, where);
  if (!config.is_object() || !config.contains("hosts")) {
    Cursor{where, 1}.refuse(1, "there is no \"hosts\" in it");
  }
  return hosts_of(config["hosts"], text, where);
}

}  // namespace chainmail::launch
