// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A second process above the agent. Ranks die with their agent (PR_SET_PDEATHSIG), but what ranks
// have started does not; orphaned, it becomes the warden's, which ends it. The other way round a
// warden's death ends the agent.

#pragma once

#include <chrono>
#include <string>

namespace chainmail::launch {

/// Forks. Returns in the new process, which is to be the agent; the old one waits for it, clears
/// up, also what an agent with this marker leaves in folders, and exits with its code. Call before
/// anything else, while there is one thread.
void fork_under_warden(const std::string& marker);

/// In the agent: how long the controller would wait for it while it is stopped.
void tell_warden(std::chrono::milliseconds lease);

}  // namespace chainmail::launch
