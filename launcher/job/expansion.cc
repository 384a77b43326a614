// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/job/expansion.h"

#include <algorithm>
#include <string_view>

namespace chainmail::launch {
namespace {

constexpr std::string_view kInput = "input.";
constexpr std::string_view kOutput = "output.";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::size_t name_length(std::string_view text) {
  std::size_t length = 0;
  if (text.empty() || (text.front() >= '0' && text.front() <= '9')) return 0;
  while (length < text.size() && is_name_character(text[length])) ++length;
  return length;
}

bool is_name_in_braces(std::string_view name) {
  for (const std::string_view prefix : {kInput, kOutput}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view id = name.substr(prefix.size());
    return !id.empty() && std::all_of(id.begin(), id.end(), is_name_character);
  }
  return !name.empty() && name_length(name) == name.size();
}

// What stands at a '$'.
struct Dollar {
  std::size_t length = 1;  // of its text in the pattern
  std::string name;        // empty: a dollar
  std::string problem;     // why it is no pattern
};

Dollar dollar_at(std::string_view pattern, std::size_t at) {
  const std::string_view rest = pattern.substr(at + 1);
  if (rest.starts_with('$')) return {2, "", ""};
  if (rest.starts_with('{')) {
    const std::size_t end = rest.find('}');
    if (end == std::string_view::npos) return {1, "", "'${' has no '}'"};
    const std::string name(rest.substr(1, end - 1));
    if (is_name_in_braces(name)) return {end + 2, name, ""};
    return {1, "",
            "'${...}' holds a name of letters, digits and '_', or input.ID or output.ID, and "
            "nothing else"};
  }
  const std::size_t length = name_length(rest);
  if (length > 0) return {length + 1, std::string(rest.substr(0, length)), ""};
  if (rest.starts_with('('))
    return {1, "", "'$(...)' would run a command, and no shell reads this"};
  return {1, "", "no name follows '$'"};
}

}  // namespace

std::vector<std::string> names_in(const std::string& pattern) {
  std::vector<std::string> names;
  for (std::size_t at = pattern.find('$'); at != std::string::npos; at = pattern.find('$', at)) {
    Dollar dollar = dollar_at(pattern, at);
    if (!dollar.problem.empty()) {
      throw UsageError(dollar.problem + " (character " + std::to_string(at + 1) +
                       " of it); a dollar is written '$$'");
    }
    if (!dollar.name.empty()) names.push_back(std::move(dollar.name));
    at += dollar.length;
  }
  return names;
}

std::string variable_of(const std::string& name) {
  if (name.starts_with(kInput)) return "AZ_BATCHAI_INPUT_" + name.substr(kInput.size());
  if (name.starts_with(kOutput)) return "AZ_BATCHAI_OUTPUT_" + name.substr(kOutput.size());
  return name;
}

std::string expanded(
    const std::string& pattern,
    const std::function<std::optional<std::string>(const std::string& name)>& value_of) {
  std::string text;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t next = std::min(pattern.find('$', at), pattern.size());
    text.append(pattern, at, next - at);
    if (next == pattern.size()) break;
    const Dollar dollar = dollar_at(pattern, next);
    text += dollar.name.empty() ? "$" : value_of(dollar.name).value_or("");
    at = next + dollar.length;
  }
  return text;
}

std::string expanded(const std::string& pattern, const Environment& variables) {
  return expanded(pattern,
                  [&](const std::string& name) { return value_of(variables, variable_of(name)); });
}

std::string as_pattern(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    pattern += c;
    if (c == '$') pattern += c;
  }
  return pattern;
}

}  // namespace chainmail::launch
