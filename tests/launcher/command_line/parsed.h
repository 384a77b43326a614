// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher makes of a command line.

#pragma once

#include <string>
#include <vector>

#include "launcher/command_line/parse.h"

namespace chainmail::launch {

inline Options parse(const std::vector<std::string>& arguments) { return parse_options(arguments); }

/// The message; "accepted" where there is none.
inline std::string refusal(const std::vector<std::string>& arguments) {
  try {
    (void)parse(arguments);
    return "accepted";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace chainmail::launch
