// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/object_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "launcher/job/text.h"
#include "launcher/jobs/file/text/durations.h"

namespace chainmail::launch {
namespace {

using NodeKind = JsonNode::Kind;

bool is_scalar_of_option(const JsonNode& node) {
  return !node.option.empty() && (node.kind == NodeKind::kNumber || node.kind == NodeKind::kBool);
}

void refuse_kind(const JsonNode& node, const std::string& wanted, Mistakes& mistakes) {
  std::string message = "must be " + wanted + ", not " + to_string(node.kind);
  const bool is_number = node.kind == NodeKind::kNumber || node.kind == NodeKind::kBool;
  if (is_number && wanted == to_string(NodeKind::kText)) message += "; put it in double quotes";
  mistakes.add(node, message);
}

// As JSON Schema has it: "8" is one, and "8.0" and "8e0" are the same number.
std::optional<std::int64_t> whole_value(const std::string& text) {
  if (const auto value = whole_number<std::int64_t>(text)) return value;
  constexpr double kMostExact = 9007199254740992.0;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_whole = stop == end && error == std::errc() && std::abs(value) < kMostExact &&
                        std::trunc(value) == value;
  return is_whole ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
}

}  // namespace

bool check_kind(const JsonNode& node, JsonNode::Kind kind, Mistakes& mistakes) {
  if (node.kind != kind) refuse_kind(node, to_string(kind), mistakes);
  return node.kind == kind;
}

std::optional<std::string> text_in(const JsonNode& node, Mistakes& mistakes) {
  if (is_scalar_of_option(node)) return node.text;
  return check_kind(node, NodeKind::kText, mistakes) ? std::optional(node.text) : std::nullopt;
}

std::optional<bool> bool_in(const JsonNode& node, Mistakes& mistakes) {
  return check_kind(node, NodeKind::kBool, mistakes) ? std::optional(node.is_true) : std::nullopt;
}

std::optional<std::int64_t> whole_number_in(const JsonNode& node, std::int64_t least,
                                            std::int64_t most, Mistakes& mistakes) {
  const auto value = node.kind == NodeKind::kNumber ? whole_value(node.text) : std::nullopt;
  if (value && *value >= least && *value <= most) return value;
  const std::string wanted =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (node.kind == NodeKind::kNumber) {
    mistakes.add(node, "must be " + wanted);
  } else {
    refuse_kind(node, wanted, mistakes);
  }
  return std::nullopt;
}

std::optional<std::chrono::milliseconds> duration_in(const JsonNode& node, Mistakes& mistakes) {
  std::optional<std::chrono::milliseconds> value;
  if (node.kind == NodeKind::kNumber) value = duration_of_number(node.text);
  if (node.kind == NodeKind::kText) value = duration_in(std::string_view(node.text));
  if (!value) {
    mistakes.add(node,
                 "must be a time such as \"90s\", \"30m\", \"1.5h\" or \"7d\", or a number of "
                 "seconds, and a year at most");
  }
  return value;
}

ObjectReader::ObjectReader(const JsonNode& node, Mistakes& mistakes, bool nulls_are_absent)
    : node_(node), mistakes_(mistakes), nulls_are_absent_(nulls_are_absent) {
  (void)check_kind(node, NodeKind::kObject, mistakes);
}

const JsonNode* ObjectReader::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const JsonNode* found = node_.find(key);
  const bool is_absent = found == nullptr || (nulls_are_absent_ && found->kind == NodeKind::kNull);
  return is_absent ? nullptr : found;
}

const JsonNode* ObjectReader::require(const std::string& key) {
  const JsonNode* found = find(key);
  if (found == nullptr && node_.kind == NodeKind::kObject) {
    mistakes_.add(node_, "'" + key + "' is missing");
  }
  return found;
}

void ObjectReader::text(const std::string& key, std::string& out) {
  const JsonNode* node = find(key);
  if (node == nullptr) return;
  if (auto value = text_in(*node, mistakes_)) out = *std::move(value);
}

void ObjectReader::flag(const std::string& key, bool& out) {
  const JsonNode* node = find(key);
  if (node == nullptr) return;
  out = bool_in(*node, mistakes_).value_or(out);
}

void ObjectReader::number(const std::string& key, std::uint32_t least, std::uint32_t most,
                          std::optional<std::uint32_t>& out) {
  const JsonNode* node = find(key);
  if (node == nullptr) return;
  if (const auto value = whole_number_in(*node, least, most, mistakes_)) {
    out = static_cast<std::uint32_t>(*value);
  }
}

void ObjectReader::number(const std::string& key, std::uint32_t least, std::uint32_t most,
                          std::uint32_t& out) {
  std::optional<std::uint32_t> value;
  number(key, least, most, value);
  out = value.value_or(out);
}

void ObjectReader::duration(const std::string& key, std::optional<std::chrono::milliseconds>& out) {
  const JsonNode* node = find(key);
  if (node == nullptr) return;
  if (const auto value = duration_in(*node, mistakes_)) out = value;
}

void ObjectReader::duration(const std::string& key, std::chrono::milliseconds& out) {
  std::optional<std::chrono::milliseconds> value;
  duration(key, value);
  out = value.value_or(out);
}

std::vector<const JsonMember*> ObjectReader::unknown() const {
  std::vector<const JsonMember*> found;
  for (const JsonMember& member : node_.members) {
    if (std::find(known_.begin(), known_.end(), member.key) == known_.end()) {
      found.push_back(&member);
    }
  }
  return found;
}

// To look for what a thousand wrong keys may mean would take long, and nobody would read it.
std::string ObjectReader::meant_by(const std::string& key, std::size_t index) const {
  constexpr std::size_t kMostAdvice = 100;
  return index < kMostAdvice ? did_you_mean(key, known_) : "";
}

void ObjectReader::refuse_unknown() {
  std::size_t index = 0;
  for (const JsonMember* member : unknown()) {
    const std::string meant = meant_by(member->key, index++);
    mistakes_.add(
        node_at_key(node_, *member),
        "unknown key" + (meant.empty() ? "; known here are " + joined(known_, ", ") : meant));
  }
}

void ObjectReader::warn_of_unknown() {
  std::size_t index = 0;
  for (const JsonMember* member : unknown()) {
    const std::string meant = meant_by(member->key, index++);
    mistakes_.warn_of_key(node_at_key(node_, *member),
                          "unknown key" + (meant.empty() ? "; it has no effect" : meant));
  }
}

JsonNode node_at(const JsonNode& place, JsonNode::Kind kind, std::string text) {
  JsonNode node;
  node.kind = kind;
  node.text = std::move(text);
  node.place = place.place;
  node.pointer = place.pointer;
  node.option = place.option;
  return node;
}

JsonNode node_at_key(const JsonNode& object, const JsonMember& member) {
  JsonNode node = node_at(member.value, NodeKind::kNull);
  if (member.value.option.empty()) node.place = member.place;
  if (node.pointer.empty()) node.pointer = pointer_to(object.pointer, member.key);
  return node;
}

}  // namespace chainmail::launch
