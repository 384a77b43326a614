// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Processes that outlive the launcher and clear up after it, however it ended.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace chainmail::launch {

/// What `ps` and `pkill` know a process by that ends what is left of a job. Not the launcher's
/// name.
inline constexpr char kReaperName[] = "job-reaper";  // 15 characters at most

/// Starts this program anew with `words` as its command line: a copy of this process would hold the
/// job's secret. It has `parent_lives`, which ends with this process, as its standard input and
/// `output` (-1: nothing) as its standard output, and no signal of a terminal or to the launcher's
/// group comes there.
///
/// @return its process id, -1 where it could not be made
[[nodiscard]] pid_t start_reaper(std::vector<std::string> words, int parent_lives, int output = -1);

/// In such a process: its name, and no signal but SIGKILL ends it.
void be_reaper();

}  // namespace chainmail::launch
