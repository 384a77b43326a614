// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Two processes above the agent. Ranks die with their agent (PR_SET_PDEATHSIG), but what ranks have
// started does not; orphaned, it becomes the child of the next of those above that is left, which
// ends it and removes the agent's folders.
//
//   supervisor   what the starter has started (a remote shell, srun, qrsh): has its signals and its
//            status, and dies with its process group
//   reaper   in a session of its own, and by another name: neither `kill` of that group nor
//            `pkill launcher` or `pkill -f chainmail` reach it
//   agent
//
// The end of any of the three is the end of all.

#pragma once

#include <chrono>
#include <span>
#include <string>

#include "launcher/cgroup/control_group.h"

namespace chainmail::launch {

/// Whether the launcher is a process of this machine that is alive and not stopped; false where
/// a remote shell is in between.
[[nodiscard]] bool is_launcher_at_work();

/// Forks twice. Returns in the last process, which is to be the agent, with the group that its
/// ranks enter; the others wait, clear up, also what an agent with this marker leaves in folders,
/// and exit with its code. `arguments`: the memory of this process's command line, for the reaper's
/// name. `is_child`: the process above is the launcher. Call before anything else, while there is
/// one thread.
[[nodiscard]] ControlGroup fork_under_supervisor(const std::string& marker,
                                                 std::span<char> arguments, bool is_child);

/// In the agent: how long the controller would wait for it while it is stopped; 0 once it is done.
void tell_supervisor(std::chrono::milliseconds lease);

}  // namespace chainmail::launch
