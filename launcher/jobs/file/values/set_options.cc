// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/set_options.h"

#include <algorithm>
#include <vector>

#include "launcher/hosts/host_text.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/text/json_cursor.h"

namespace chainmail::launch {
namespace {

using NodeKind = JsonNode::Kind;

// Gives a tree that stands in no file its place.
void move_to(JsonNode& node, const std::string& option, const std::string& pointer) {
  node.option = option;
  node.pointer = pointer;
  node.place = {};
  if (node.kind == NodeKind::kBool) node.text = node.is_true ? "true" : "false";
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    move_to(node.items[i], option, pointer + "/" + std::to_string(i));
  }
  for (JsonMember& member : node.members) {
    move_to(member.value, option, pointer_to(pointer, member.key));
  }
}

JsonNode value_node(const std::string& text, const std::string& option,
                    const std::string& pointer) {
  JsonText json = parse_json_text(text);
  if (!json.problems.empty()) {
    json.root = {};
    json.root.kind = NodeKind::kText;
    json.root.text = text;
  }
  move_to(json.root, option, pointer);
  return std::move(json.root);
}

JsonNode& member_of(JsonNode& object, const std::string& key, const std::string& option) {
  const auto found = std::find_if(object.members.begin(), object.members.end(),
                                  [&](const JsonMember& member) { return member.key == key; });
  if (found != object.members.end()) return found->value;
  JsonNode& made = object.members.emplace_back(JsonMember{key, {}, {}}).value;
  made.kind = NodeKind::kObject;
  made.option = option;
  made.pointer = pointer_to(object.pointer, key);
  return made;
}

void apply_set(JsonNode& root, const std::string& set, Mistakes& mistakes) {
  const std::size_t equals = set.find('=');
  JsonNode at;
  at.option = "--set " + printable(set.substr(0, equals));
  const std::vector<std::string> keys = split(set.substr(0, equals), '.');
  const bool has_empty_key =
      std::any_of(keys.begin(), keys.end(), [](const std::string& key) { return key.empty(); });
  if (equals == std::string::npos || has_empty_key) {
    // What stands there may be a value alone.
    mistakes.add("--set", "wants KEY=VALUE, such as limits.time=1h");
    return;
  }
  if (find_bad_utf8(set) != std::string::npos || set.find('\0') != std::string::npos) {
    mistakes.add(at, "the value is not UTF-8");
    return;
  }
  if (keys.front() == "properties") {
    mistakes.add(at,
                 "keys of the modern form are set, such as hosts.count for nodeCount; "
                 "launcher job convert shows them");
    return;
  }
  JsonNode* node = &root;
  for (const std::string& key : keys) {
    if (node->kind != NodeKind::kObject) {
      at.pointer = node->pointer;
      mistakes.add(at, std::string("is ") + to_string(node->kind) +
                           ", which has no keys; set it as a whole");
      return;
    }
    node = &member_of(*node, key, at.option);
  }
  *node = value_node(set.substr(equals + 1), at.option, node->pointer);
}

}  // namespace

void apply_sets(JsonNode& root, std::span<const std::string> sets, Mistakes& mistakes) {
  for (const std::string& set : sets) apply_set(root, set, mistakes);
}

}  // namespace chainmail::launch
