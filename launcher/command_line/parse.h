// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's command line. Pure functions over argv, thread-safe. The options themselves are
// listed in flags.cc. Why neither gflags nor CLI11 reads it: docs/decisions/0001.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// `arguments` without the launcher's own name. Throws UsageError with one sentence.
[[nodiscard]] Options parse_options(std::span<const std::string> arguments);

/// Splits the value of `flag` into words; quotes group, a backslash escapes. Throws UsageError.
[[nodiscard]] std::vector<std::string> split_command(const std::string& text,
                                                     const std::string& flag = "--rsh");

/// --help, one screen: what people use every day. Made from the table of options.
[[nodiscard]] std::string usage_text();
/// --help-all: every option.
[[nodiscard]] std::string full_usage_text();

/// The words of --rsh, or ssh, and those of --rsh-args. Throws UsageError.
[[nodiscard]] std::vector<std::string> remote_shell_of(const Options& options);

}  // namespace chainmail::launch
