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

/// What a file of the kernel's says; nothing where it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);
/// The fields of /proc/PID/stat behind the name, which may hold anything: the state first. Empty
/// where the kernel does not tell.
[[nodiscard]] std::vector<std::string> stat_fields(const std::string& pid);
/// The kernel's flags of a process (PF_EXITING and the like) out of those fields; 0 without them.
[[nodiscard]] unsigned long flags_in(const std::vector<std::string>& stat);

/// Also of a process whose end its parent has not asked for yet. False without a number.
[[nodiscard]] bool has_ended(pid_t pid);
/// Whether there is such a process here that has not ended and is not stopped: if it says nothing,
/// it has no time, or waits for a disk.
[[nodiscard]] bool is_at_work(pid_t pid);

/// Asks for the end of what this process has not started itself and has come to be the parent of:
/// nobody else would, and it would be a zombie for as long as this process lives.
void reap_orphans();

/// The direct children of this process, zombies included.
[[nodiscard]] std::vector<pid_t> children_of_this_process();

/// Sends SIGKILL to every child and reaps it, with what it leaves behind, until none is left or
/// `deadline`. Returns those that would not go.
std::vector<pid_t> end_all_children(internal::Deadline deadline);

/// The same, until none is left but those that nobody can end from here; at most 10 s, which is
/// what a process with much memory may take.
void end_slow_children();

/// Why it is still there, for people, if it will be there for as long as it likes; empty of one
/// that is ending or has ended: how long that takes depends on its memory and on other work.
[[nodiscard]] std::string why_left(pid_t pid);

}  // namespace chainmail::launch
