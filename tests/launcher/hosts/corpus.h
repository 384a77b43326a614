// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads corpus.txt; its head describes the form.

#pragma once

#include <map>
#include <string>
#include <vector>

namespace chainmail::launch {

struct CorpusCase {
  int line = 0;  ///< in corpus.txt
  std::string kind;
  std::string title;
  std::string text;
  std::map<std::string, std::string> variables;
  std::string file_variable;           ///< names a file with `text` in it
  std::vector<std::string> arguments;  ///< options of the launcher
  std::vector<std::string> expected;
  std::string refusal;  ///< "1:10 reason" or "reason"

  /// For messages of tests.
  [[nodiscard]] std::string name() const;
};

/// Throws std::runtime_error for a file that does not keep to the form.
[[nodiscard]] std::vector<CorpusCase> read_corpus(const std::string& path);

}  // namespace chainmail::launch
