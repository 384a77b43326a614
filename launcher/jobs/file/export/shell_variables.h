// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Variables of a job in the order in which a script can set them: the file has them in any order,
// and some have their values on the ranks' hosts only. Pure functions, thread-safe.

#pragma once

#include <span>
#include <string>
#include <vector>

namespace chainmail::launch {

struct ShellVariable {
  std::string name;
  std::string word;                ///< its value, for sh
  std::vector<std::string> names;  ///< variables that the value names
  bool is_of_host = false;         ///< what it is shows on a rank's host, or to the rank
};

/// Each behind those that it names, as far as these do not go round in a circle; and of the host
/// where one of those is, or is a rank's.
[[nodiscard]] std::vector<ShellVariable> in_order(std::vector<ShellVariable> variables);

/// Whether a value with these names in it is of the host.
[[nodiscard]] bool is_of_host(std::span<const std::string> names,
                              std::span<const ShellVariable> variables);

/// The names in a pattern, as variables.
[[nodiscard]] std::vector<std::string> variables_in(const std::string& pattern);

}  // namespace chainmail::launch
