// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/option_values.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "launcher/command_line/flags.h"
#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/text/object_reader.h"

namespace chainmail::launch {
namespace {

struct OptionKey {
  std::string_view flag;  // the first of its names
  std::string_view key;   // what says the same in a job file; empty: the command line's alone
};

constexpr std::array<OptionKey, 41> kOptionKeys = {{
    {"H", "hosts.from"},
    {"hostfile", "hosts.from"},
    {"wait-hosts", "hosts.wait"},
    {"n", "ranks"},
    {"per-node", "per_node"},
    {"pernode", "per_node"},
    {"x", "environment"},
    {"genv", "environment"},
    {"genvlist", "environment"},
    {"envlist", "environment"},
    {"wdir", "directory"},
    {"timeout", "limits.time"},
    {"stall-timeout", "limits.stall"},
    {"grace", "limits.grace"},
    {"max-restarts", "retry.failures"},
    {"elastic", "elastic"},
    {"min-np", "elastic.min"},
    {"max-np", "elastic.max"},
    {"prepare", "prepare.command"},
    {"prepare-only-file", "prepare.command"},
    {"prepare-timeout", "prepare.timeout"},
    {"tag-output", "logs.tag"},
    {"output", "logs.path"},
    {"name", "name"},
    {"mount", "mounts"},
    {"secret", "secrets"},
    {"job", ""},
    {"set", ""},
    {"detach", ""},
    {"no-wait", ""},
    {"resume", ""},
    {"dry-run", ""},
    {"display-map", ""},
    {"json", ""},
    {"help", ""},
    {"help-all", ""},
    {"version", ""},
    {"allow-run-as-root", ""},
    {"nooversubscribe", ""},
    {"bynode", "options.map-by"},
    {"byslot", "options.map-by"},
}};

std::string normal_flag(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Why a file may not have it; empty: it may.
std::string why_not(const std::string& flag) {
  const Flag* known = find_flag(flag);
  const std::string& first = known == nullptr ? flag : known->names.front();
  const auto found = std::find_if(kOptionKeys.begin(), kOptionKeys.end(),
                                  [&](const OptionKey& one) { return one.flag == first; });
  if (found != kOptionKeys.end()) {
    if (found->key.empty()) return "belongs to the command line";
    return "say '" + std::string(found->key) + "' in its place";
  }
  if (known != nullptr) return "";
  const std::string meant = nearest_flag(flag);
  return "the launcher has no such option" + (meant.empty()
                                                  ? "; launcher --help-all has the list"
                                                  : ", did you mean '" + meant.substr(2) + "'?");
}

// Its value as the command line has it: nothing for a flag without one.
bool read_value(const JsonNode& node, JobSpec::Option& option, Mistakes& mistakes) {
  switch (node.kind) {
    case JsonNode::Kind::kText:
    case JsonNode::Kind::kNumber:
      option.value = node.text;
      return true;
    case JsonNode::Kind::kBool:
      if (node.is_true) return true;
      mistakes.add(node, "an option that is not wanted is left out; true is one without a value");
      return false;
    case JsonNode::Kind::kNull:
    case JsonNode::Kind::kList:
    case JsonNode::Kind::kObject:
      mistakes.add(node, "must be a text, a number or true");
  }
  return false;
}

// What the command line would say of it; empty: nothing.
std::string refusal_of(const JobSpec::Option& option) {
  const std::vector<std::string> words = {"--" + option.flag +
                                          (option.value ? "=" + *option.value : "")};
  Options options;
  try {
    FlagWords flag_words(words);
    find_flag(option.flag)->apply({options, options}, flag_words);
  } catch (const std::runtime_error& error) {
    return printable(error.what());
  }
  return options.per_node ? "say 'per_node' in place of a number per node here" : "";
}

}  // namespace

std::vector<JobSpec::Option> options_in(const JobReading& reading, const JsonNode& node) {
  std::vector<JobSpec::Option> options;
  std::set<std::string> first_names;
  for (const JsonMember& member : node.members) {
    const JsonNode key = node_at_key(node, member);
    JobSpec::Option option{normal_flag(member.key), std::nullopt};
    const bool has_dashes = option.flag.starts_with('-');
    if (const std::string problem =
            has_dashes ? "options are named without dashes" : why_not(option.flag);
        !problem.empty()) {
      reading.mistakes.add(key, problem);
      continue;
    }
    if (!first_names.insert(find_flag(option.flag)->names.front()).second) {
      reading.mistakes.add(key, "the same option stands here by another of its names");
      continue;
    }
    if (!read_value(member.value, option, reading.mistakes)) continue;
    if (const std::string problem = refusal_of(option); !problem.empty()) {
      reading.mistakes.add(member.value, problem);
    }
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace chainmail::launch
