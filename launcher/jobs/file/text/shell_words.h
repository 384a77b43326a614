// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Command lines of Batch AI's files, which bash read, for programs that are started without a
// shell. Pure functions, thread-safe.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

struct ShellWords {
  std::vector<std::string> patterns;  ///< as launcher/job/expansion.h has them
  std::string problem;                ///< why the line needs a shell; empty: it needs none
  std::size_t at = 0;                 ///< the byte of the line where that shows
};

/// The words of a line as sh splits it: quotes and backslashes, $NAME and ${NAME}, "~/" as $HOME/,
/// and nothing else. Values are not split again.
[[nodiscard]] ShellWords split_shell_words(std::string_view line);

/// A variable in a line that a shell will read, or in a pattern.
struct NamedVariable {
  std::string name;
  std::string_view behind;  ///< what follows it
};

/// $NAME and ${NAME} in a line or script, in order: outside single quotes, comments and
/// here-documents whose word is quoted.
[[nodiscard]] std::vector<NamedVariable> shell_variables(std::string_view line);
/// The same in a pattern, which has no quotes.
[[nodiscard]] std::vector<NamedVariable> pattern_variables(std::string_view pattern);

/// The text as one word of sh that means itself, in quotes where it needs them.
[[nodiscard]] std::string shell_word(const std::string& text);
/// A pattern as one word of sh, which expands it from the environment.
[[nodiscard]] std::string shell_word_of_pattern(const std::string& pattern);

}  // namespace chainmail::launch
