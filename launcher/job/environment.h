// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Environments as values, and what travels from the launcher's to the ranks. Thread-safe.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

using Environment = std::map<std::string, std::string>;

/// The environment of this process.
[[nodiscard]] Environment current_environment();

/// "NAME=value" each, for exec.
[[nodiscard]] std::vector<std::string> entries_of(const Environment& variables);

/// The value, or nothing when it is absent or empty.
[[nodiscard]] std::optional<std::string> value_of(const Environment& variables,
                                                  const std::string& name);

/// The files that `name` may be in the folders of a PATH, in order; an empty folder is this one.
[[nodiscard]] std::vector<std::string> files_in_path(const std::string& path,
                                                     const std::string& name);

/// The working directory by the name that the shell has for it ($PWD), which other hosts have too
/// where an automounter or a link gives it another one here.
[[nodiscard]] std::string current_directory();

/// Variables for every rank: CHAINMAIL_*, OMP_* and NCCL_* of `own`, and what -x names. Names that
/// -x gives without a value and `own` does not have are added to `missing`.
[[nodiscard]] Environment exported_environment(const Environment& own,
                                               const std::vector<ExportedVariable>& exported,
                                               std::vector<std::string>& missing);

/// What only the ranks of one host get: CUDA_VISIBLE_DEVICES with the slots that --include or
/// --exclude left there, unless `variables` have it.
void add_variables_of(const Host& host, Environment& variables);

}  // namespace chainmail::launch
