// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Removes containers that an ended job may have left: an engine keeps one whose client was killed,
// or whose host was cut off, for as long as the agent in it takes to notice.
//
// Call from the main thread (launcher/process/fork_exec.h), after the loop.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

/// On these hosts, all at the same time; those that do not answer within ten seconds keep them, for
/// as long as their agents' lease. `options`: of the job. Returns lines for people.
[[nodiscard]] std::vector<std::string> remove_containers(const Options& options,
                                                         const std::string& label,
                                                         const std::vector<Host>& hosts);

}  // namespace chainmail::launch
