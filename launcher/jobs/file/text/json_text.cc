// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/json_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/text/json_cursor.h"
#include "launcher/jobs/file/text/json_syntax.h"
#include "launcher/output/line_splitter.h"

namespace chainmail::launch {
namespace {

using SaxBase = nlohmann::json_sax<nlohmann::json>;
using NodeKind = JsonNode::Kind;

std::string place_text(TextPlace place) {
  return std::to_string(place.line) + ":" + std::to_string(place.column);
}

// Takes what the library reads and puts it where the cursor, which goes through the same text, has
// found it.
class TreeBuilder : public SaxBase {
 public:
  TreeBuilder(std::string_view text, JsonText& out) : cursor_(text), out_(out) {}

  bool null() override { return add_leaf(NodeKind::kNull) != nullptr; }
  bool boolean(bool value) override {
    JsonNode* node = add_leaf(NodeKind::kBool);
    if (node != nullptr) node->is_true = value;
    return node != nullptr;
  }
  bool number_integer(number_integer_t value) override { return add_number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return add_number(std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return add_number(text); }
  bool string(string_t& value) override {
    JsonNode* node = add_leaf(NodeKind::kText);
    if (node == nullptr) return false;
    if (value.find('\0') != string_t::npos) problem(*node, "a text may not contain \\u0000");
    node->text = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(NodeKind::kObject); }
  bool start_array(std::size_t) override { return open(NodeKind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    cursor_.skip_blanks(/*separators=*/true);
    Frame& frame = frames_.back();
    const auto [known, is_new] = frame.keys.try_emplace(value, cursor_.place());
    if (!is_new) {
      out_.problems.push_back({cursor_.place(), pointer_to(frame.node->pointer, value),
                               "the key stands at " + place_text(known->second) + " already"});
    }
    frame.node->members.push_back({value, cursor_.place(), {}});
    cursor_.skip_token();
    expected_ = JsonExpected::kColon;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const JsonNode* inside = frames_.empty() ? nullptr : frames_.back().node;
    out_.problems.push_back(
        json_syntax_problem({cursor_, position, expected_, inside, error.what()}));
    return false;
  }

 private:
  struct Frame {
    JsonNode* node;
    std::map<std::string, TextPlace> keys;
  };

  void problem(const JsonNode& node, const std::string& message) {
    out_.problems.push_back({node.place, node.pointer, message});
  }

  // The node that the next value fills; its siblings may move later, but it is done by then.
  JsonNode* place_for_value() {
    if (frames_.empty()) return &out_.root;
    JsonNode& parent = *frames_.back().node;
    if (parent.kind == NodeKind::kObject) {
      JsonMember& member = parent.members.back();
      member.value.pointer = pointer_to(parent.pointer, member.key);
      return &member.value;
    }
    JsonNode& item = parent.items.emplace_back();
    item.pointer = pointer_to(parent.pointer, std::to_string(parent.items.size() - 1));
    return &item;
  }

  JsonNode* begin_value(NodeKind kind) {
    cursor_.skip_blanks(/*separators=*/true);
    JsonNode* node = place_for_value();
    node->kind = kind;
    node->place = cursor_.place();
    if (++values_ <= kMaxJsonValues) return node;
    problem(*node, "more than " + std::to_string(kMaxJsonValues) + " values");
    return nullptr;
  }

  JsonNode* add_leaf(NodeKind kind) {
    JsonNode* node = begin_value(kind);
    cursor_.skip_token();
    after_value();
    return node;
  }

  bool add_number(const std::string& text) {
    JsonNode* node = add_leaf(NodeKind::kNumber);
    if (node != nullptr) node->text = text;
    return node != nullptr;
  }

  bool open(NodeKind kind) {
    JsonNode* node = begin_value(kind);
    if (node == nullptr) return false;
    cursor_.skip_token();
    frames_.push_back({node, {}});
    expected_ = kind == NodeKind::kObject ? JsonExpected::kFirstKey : JsonExpected::kFirstItem;
    if (frames_.size() <= kMaxJsonDepth) return true;
    problem(*node, "more than " + std::to_string(kMaxJsonDepth) + " levels of lists and objects");
    return false;
  }

  bool close() {
    cursor_.skip_blanks(/*separators=*/true);
    cursor_.skip_token();
    frames_.pop_back();
    after_value();
    return true;
  }

  void after_value() {
    expected_ = frames_.empty() ? JsonExpected::kNothing : JsonExpected::kSeparator;
  }

  JsonCursor cursor_;
  JsonText& out_;
  std::vector<Frame> frames_;
  std::size_t values_ = 0;
  JsonExpected expected_ = JsonExpected::kValue;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const noexcept {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const char* to_string(JsonNode::Kind kind) {
  switch (kind) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kBool:
      return "true or false";
    case NodeKind::kNumber:
      return "a number";
    case NodeKind::kText:
      return "a text";
    case NodeKind::kList:
      return "a list";
    case NodeKind::kObject:
      return "an object";
  }
  return "";
}

// Each value has one of its own, and a key may be as long as the file.
std::string pointer_to(const std::string& pointer, std::string_view key) {
  constexpr std::size_t kLongestKey = 100;
  constexpr std::size_t kLongestPointer = 1000;
  constexpr std::string_view kMore = "...";
  if (pointer.size() > kLongestPointer) {
    return pointer.ends_with(kMore) ? pointer : pointer + "/" + std::string(kMore);
  }
  std::string escaped;
  const std::string_view shown = key.substr(0, whole_characters(key, kLongestKey));
  for (const char c : printable(shown) + std::string(shown.size() < key.size() ? kMore : "")) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return pointer + "/" + escaped;
}

JsonText parse_json_text(std::string_view text) {
  JsonText out;
  // The library ends a comment at a zero.
  const std::size_t bad = std::min(find_bad_utf8(text), text.find('\0'));
  if (bad != std::string_view::npos) {
    JsonCursor cursor(text);
    cursor.advance_to(bad);
    const bool is_wide = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
    out.problems.push_back({cursor.place(), "",
                            is_wide ? "this is UTF-16; save the file as UTF-8"
                                    : "a byte that is not UTF-8 text; save the file as UTF-8"});
    return out;
  }
  TreeBuilder builder(text, out);
  (void)nlohmann::json::sax_parse(text, &builder, nlohmann::json::input_format_t::json,
                                  /*strict=*/true, /*ignore_comments=*/true);
  return out;
}

}  // namespace chainmail::launch
