// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What travels from the launcher's environment to the ranks. Pure, thread-safe.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/options.h"

namespace chainmail::launch {

using Environment = std::map<std::string, std::string>;

/// The environment of this process.
[[nodiscard]] Environment current_environment();

/// Variables for every rank: CHAINMAIL_*, OMP_* and NCCL_* of `own`, and what -x names. Names that
/// -x gives without a value and `own` does not have are added to `missing`.
[[nodiscard]] Environment exported_environment(const Environment& own,
                                               const std::vector<ExportedVariable>& exported,
                                               std::vector<std::string>& missing);

}  // namespace chainmail::launch
