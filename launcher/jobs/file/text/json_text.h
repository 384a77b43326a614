// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// JSON with comments ("//" and "/* */") as a tree that knows where everything stands, so that
// whoever finds a mistake in what it says can name the place. Strict otherwise: no comma behind the
// last value, no key twice, no bytes that are not UTF-8. Pure functions and values, thread-safe.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

/// Both count from 1, columns in characters; 0: in no file.
struct TextPlace {
  std::size_t line = 0;
  std::size_t column = 0;
};

struct JsonMember;

struct JsonNode {
  enum class Kind { kNull, kBool, kNumber, kText, kList, kObject };
  Kind kind = Kind::kNull;
  std::string text;                 ///< kText, and kNumber as it is written
  bool is_true = false;             ///< kBool
  std::vector<JsonNode> items;      ///< kList
  std::vector<JsonMember> members;  ///< kObject, in the order of the file
  TextPlace place;
  std::string pointer;  ///< RFC 6901: "/inputs/DATASET"; the root's is empty. Long ones are cut
  std::string option;   ///< "--set limits.time" where that is where it comes from

  /// Null if there is none of that name.
  [[nodiscard]] const JsonNode* find(std::string_view key) const noexcept;
};

struct JsonMember {
  std::string key;
  TextPlace place;  ///< the key's
  JsonNode value;
};

struct JsonProblem {
  TextPlace place;
  std::string pointer;
  std::string message;
};

struct JsonText {
  JsonNode root;
  std::vector<JsonProblem> problems;  ///< none: root is the whole text
};

/// More levels, or values, than this are taken for no text that a person has written.
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = 65536;

[[nodiscard]] JsonText parse_json_text(std::string_view text);

/// "null", "a number", "a text", ...
[[nodiscard]] const char* to_string(JsonNode::Kind kind);

/// `pointer` with one key more, for people: what is too long for them ends in "...".
[[nodiscard]] std::string pointer_to(const std::string& pointer, std::string_view key);

}  // namespace chainmail::launch
