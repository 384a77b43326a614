// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The manual page and the completions of shells, made from the tables of options and verbs. Pure,
// thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/command_line/flags.h"

namespace chainmail::launch {

/// launcher(1), for groff and mandoc.
[[nodiscard]] std::string man_page(const std::string& version);

/// For "bash", "zsh" or "fish"; names of jobs come from `launcher ps -a -q`. Throws UsageError for
/// another shell.
[[nodiscard]] std::string completion_for(const std::string& shell);

/// An option as people write it.
struct ShownOption {
  std::vector<std::string> names;  ///< "-n", "-np"
  std::string value;               ///< "N", or empty
  std::string help;                ///< one line
};
/// Those that --help-all shows.
[[nodiscard]] std::vector<ShownOption> shown_options();
[[nodiscard]] ShownOption shown_option(const Flag& flag);

}  // namespace chainmail::launch
