// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// $NAME and ${NAME} in the words of a job file's program, which are expanded on the rank's host
// since values differ from host to host. "$$" is a dollar; there is nothing else: no globs, no
// $(...). Pure functions, thread-safe.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/environment.h"

namespace chainmail::launch {

/// The names in a pattern, in order. "${input.ID}" and "${output.ID}" are names as well. Throws
/// UsageError for a '$' that no name follows, a "${" without an end, and names of other characters.
[[nodiscard]] std::vector<std::string> names_in(const std::string& pattern);

/// The variable of the environment that has the value of a name in a pattern: AZ_BATCHAI_INPUT_ID
/// for input.ID, AZ_BATCHAI_OUTPUT_ID for output.ID, the name itself for others.
[[nodiscard]] std::string variable_of(const std::string& name);

/// What `value_of` gives for each name; nothing is an empty text. What is no pattern stays as it
/// is.
[[nodiscard]] std::string expanded(
    const std::string& pattern,
    const std::function<std::optional<std::string>(const std::string& name)>& value_of);

/// The same with the values of an environment, each by its variable_of(). Never throws.
[[nodiscard]] std::string expanded(const std::string& pattern, const Environment& variables);

/// A pattern whose expansion is this text.
[[nodiscard]] std::string as_pattern(const std::string& text);

}  // namespace chainmail::launch
