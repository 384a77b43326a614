// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// "n1:*": how many cores n1 has, asked of n1 itself.
//
// Call from the main thread (launcher/process/fork_exec.h).

#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

/// Gives hosts with `all_cores` their slots: this machine's by looking, all others' through the
/// remote shell (the words of --rsh), some at the same time, busy ones again. Throws HostsError
/// that names all hosts that do not tell.
void count_cores(const std::vector<std::string>& remote_shell, std::vector<Host>& hosts,
                 std::chrono::milliseconds limit = std::chrono::seconds(30));

}  // namespace chainmail::launch
