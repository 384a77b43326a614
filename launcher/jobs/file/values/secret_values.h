// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Values that nobody shall see: of --secret NAME (the launcher's environment), --secret NAME=@FILE
// and a job file's "secrets". No message here has one. One thread.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

/// A longer one is no value for an environment.
inline constexpr std::size_t kMaxSecretBytes = std::size_t{64} << 10;

/// By name, those of --secret. A mistake for a name that is none, a value on the command line, a
/// variable that is not set and a file that cannot be read.
[[nodiscard]] std::map<std::string, std::string> secrets_of_options(const JobReading& reading);

/// A member of "secrets": null, a text, or {"file": PATH}. `given`: by --secret, which comes first.
[[nodiscard]] std::optional<std::string> secret_in(const JobReading& reading, const JsonNode& node,
                                                   const std::string& name,
                                                   const std::optional<std::string>& given);

/// Letters, digits and '_', no digit first.
[[nodiscard]] bool is_variable_name(const std::string& name);

}  // namespace chainmail::launch
