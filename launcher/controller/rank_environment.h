// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What travels from the launcher's environment to the ranks. Pure, thread-safe.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/host.h"
#include "launcher/options.h"

namespace chainmail::launch {

using Environment = std::map<std::string, std::string>;

/// The environment of this process.
[[nodiscard]] Environment current_environment();

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
