// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-info checkpoint: what lies in a folder of checkpoints, and whether it is whole.

#pragma once

#include <iosfwd>
#include <string>

namespace chainmail::info {

/// Reads every file of every generation in `folder` (of one run, or with runs in it) and says what
/// is wrong with which file and tensor. 0 when each run has a whole generation, 1 otherwise.
[[nodiscard]] int check_checkpoints(const std::string& folder, std::ostream& out);

}  // namespace chainmail::info
