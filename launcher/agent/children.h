// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The processes below this one that are no longer anybody else's: with PR_SET_CHILD_SUBREAPER,
// orphans of ranks become children of the agent, whatever session they moved to.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/deadline.h"

namespace chainmail::launch {

/// Makes this process the parent of orphans below it.
void adopt_orphans();

/// The direct children of this process, zombies included.
[[nodiscard]] std::vector<pid_t> children_of_this_process();

/// Sends SIGKILL to every child and reaps it, with what it leaves behind, until none is left or
/// `deadline`. Returns those that would not go.
std::vector<pid_t> end_all_children(internal::Deadline deadline);

/// Why one of them is still there, for people.
[[nodiscard]] std::string why_left(pid_t pid);

}  // namespace chainmail::launch
