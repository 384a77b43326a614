// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is wrong with a JSON text, in words for people who have never read its grammar. Nothing of
// the text is repeated but punctuation: what is not understood may be a password. Pure.

#pragma once

#include <cstddef>
#include <string_view>

#include "launcher/jobs/file/text/json_cursor.h"
#include "launcher/jobs/file/text/json_text.h"

namespace chainmail::launch {

/// What the last token lets one expect.
enum class JsonExpected {
  kValue,      ///< the text's own, or one behind a ':'
  kFirstKey,   ///< or '}'
  kFirstItem,  ///< or ']'
  kColon,
  kSeparator,  ///< ',' or the end of the object or list
  kNothing,    ///< the text is complete
};

struct JsonSyntaxError {
  JsonCursor cursor;     ///< behind the last token that was understood
  std::size_t position;  ///< how many bytes the library has read
  JsonExpected expected;
  const JsonNode* inside;   ///< the object or list that is open; null: none
  std::string_view reason;  ///< the library's
};

[[nodiscard]] JsonProblem json_syntax_problem(JsonSyntaxError error);

}  // namespace chainmail::launch
