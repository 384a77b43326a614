// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/json_syntax.h"

#include <algorithm>
#include <array>
#include <string>

namespace chainmail::launch {
namespace {

// Words of other languages where JSON has true, false and null.
constexpr std::array<std::string_view, 14> kForeignWords = {
    "True", "TRUE", "False", "FALSE", "yes", "no",  "on",
    "off",  "None", "Null",  "NULL",  "nil", "NaN", "undefined"};

struct LexicalError {
  std::string_view reason;  // how the library's begins
  const char* message;
  bool is_at_byte;  // where the library stopped, and not where the token begins
};

constexpr std::array<LexicalError, 8> kLexicalErrors = {{
    {"invalid string: missing closing quote", "this text has no closing quote", false},
    {"invalid string: forbidden character after backslash",
     "no character is written like this; a backslash is written \\\\", true},
    {"invalid string: '\\u' must be followed by 4 hex digits",
     "four hexadecimal digits belong behind \\u", true},
    {"invalid string: surrogate",
     "\\uD800 to \\uDFFF only make a character in pairs; write the character itself", true},
    {"invalid string: control character U+000A",
     "this text has no closing quote in its line; a line's end is written \\n", false},
    {"invalid string: control character U+000D",
     "this text has no closing quote in its line; a line's end is written \\n", false},
    {"invalid string: control character U+0009", "a tabulator in a text is written \\t", true},
    {"invalid string: control character", "a control character in a text is written \\u00XX", true},
}};

const LexicalError* lexical_error(std::string_view what) {
  const std::size_t dash = what.find(" - ");
  const std::string_view reason =
      dash == std::string_view::npos ? std::string_view() : what.substr(dash + 3);
  const auto found =
      std::find_if(kLexicalErrors.begin(), kLexicalErrors.end(),
                   [&](const LexicalError& known) { return reason.starts_with(known.reason); });
  return found == kLexicalErrors.end() ? nullptr : &*found;
}

std::string unfinished(const JsonNode* inside) {
  if (inside == nullptr) return "there is nothing here";
  const bool is_object = inside->kind == JsonNode::Kind::kObject;
  return std::string("the text ends, but the ") + (is_object ? "object" : "list") +
         " that begins at " + std::to_string(inside->place.line) + ":" +
         std::to_string(inside->place.column) + " has no '" + (is_object ? "}" : "]") + "' yet";
}

std::string about_value(const JsonCursor& cursor) {
  const char c = cursor.next();
  if (c == '\'') return "texts are in double quotes";
  if (c == ',' || c == '}' || c == ']' || c == ':') {
    return std::string("a value is missing before this '") + c + "'";
  }
  const std::string_view word = cursor.word();
  if (std::find(kForeignWords.begin(), kForeignWords.end(), word) != kForeignWords.end()) {
    return "there is no '" + std::string(word) + "' in JSON, but true, false and null";
  }
  if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.') {
    return "this is no number: they are written 1, -2, 0.5 or 1e3, and are below 1e308; texts are "
           "in double quotes";
  }
  if (c == '/') return "a comment begins with '//'";
  return "this is no value: texts are in double quotes";
}

std::string about_key(const JsonCursor& cursor, bool is_after_comma) {
  if (cursor.next() == '}' && is_after_comma) return "there is a ',' before this '}'; take it out";
  if (cursor.next() == '\'') return "keys are in double quotes";
  return "a key in double quotes belongs here";
}

// Goes on to where something else than expected stands, and says what.
std::string about_syntax(JsonCursor& cursor, JsonExpected expected, const JsonNode* inside) {
  const bool is_object = inside != nullptr && inside->kind == JsonNode::Kind::kObject;
  cursor.skip_blanks(/*separators=*/false);
  bool is_after_comma = false;
  const char separator = expected == JsonExpected::kColon ? ':' : ',';
  if (expected == JsonExpected::kColon || expected == JsonExpected::kSeparator) {
    if (cursor.is_at_end()) return unfinished(inside);
    if (cursor.next() != separator) {
      if (separator == ':') return "':' is missing between the key and this";
      return std::string("',' or '") + (is_object ? "}" : "]") + "' is missing before this";
    }
    is_after_comma = separator == ',';
    cursor.advance(1);
    cursor.skip_blanks(/*separators=*/false);
  }
  if (cursor.is_at_end()) return unfinished(inside);
  if (expected == JsonExpected::kNothing) return "something follows the end of the text's object";
  if (expected == JsonExpected::kFirstKey || (is_after_comma && is_object)) {
    return about_key(cursor, is_after_comma);
  }
  if (cursor.next() == ']' && is_after_comma) return "there is a ',' before this ']'; take it out";
  return about_value(cursor);
}

}  // namespace

JsonProblem json_syntax_problem(JsonSyntaxError error) {
  const std::string pointer = error.inside == nullptr ? "" : error.inside->pointer;
  const std::string message = about_syntax(error.cursor, error.expected, error.inside);
  const LexicalError* lexical = lexical_error(error.reason);
  if (lexical == nullptr || error.cursor.next() != '"') {
    return {error.cursor.place(), pointer, message};
  }
  if (lexical->is_at_byte && error.position > 0) error.cursor.advance_to(error.position - 1);
  return {error.cursor.place(), pointer, lexical->message};
}

}  // namespace chainmail::launch
