// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which remote shell reaches the hosts of a scheduler's job.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

/// True when a program of this name is in PATH.
[[nodiscard]] bool is_in_path(const std::string& program);

/// The environment for remote shells, "NAME=value" each: this process's without the variables by
/// which srun would change what passes through it or give an agent less than the job has on its
/// node, and with the one by which srun holds nothing back, also where a script of the user's
/// calls it.
[[nodiscard]] std::vector<std::string> starter_environment();

/// True for srun, with any path before it.
[[nodiscard]] bool is_srun(const std::string& program);

/// True for srun, qrsh and blaunch, with any path before them.
[[nodiscard]] bool is_scheduler_starter(const std::string& program);

/// What --rsh is where the user says nothing: the scheduler's own starter, whose processes it
/// counts and ends with the job, where it passes standard input on, reaches all `hosts` and is
/// `installed`; otherwise ssh.
[[nodiscard]] std::string default_remote_shell(
    Scheduler scheduler, const std::vector<Host>& hosts,
    const std::function<bool(const std::string&)>& installed = is_in_path);

}  // namespace chainmail::launch
