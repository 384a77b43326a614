// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Remote shells: which one reaches the hosts of a job, and the command line that opens a shell on
// another host. Pure functions, but for those that look at this process's environment.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

/// Runs /bin/sh on `host` with its standard streams connected. `remote_shell` are the words of
/// --rsh; "%h" in them stands for the host, which otherwise follows them. For ssh (by the name of
/// the first word) options for an unattended session are added after the user's own, which
/// therefore win. Nothing in it is secret and nothing needs quoting. Throws UsageError for a name
/// that ssh or a shell could take for something else, and for what the remote shell cannot do.
[[nodiscard]] std::vector<std::string> remote_shell_command(
    const std::vector<std::string>& remote_shell, const Host& host);

/// What a user types to see for himself: the same way in, without our options, running `command`.
[[nodiscard]] std::string login_line(const std::vector<std::string>& remote_shell, const Host& host,
                                     const std::string& command);

/// True for ssh itself, by the last part of the program's path.
[[nodiscard]] bool is_ssh(const std::string& program);

/// True for srun, qrsh and blaunch, with any path before them.
[[nodiscard]] bool is_scheduler_starter(const std::string& program);

/// True when a program of this name is in PATH.
[[nodiscard]] bool is_in_path(const std::string& program);

/// What --rsh is where the user says nothing: the scheduler's own starter, whose processes it
/// counts and ends with the job, where it passes standard input on, reaches all `hosts` and is
/// `installed`; otherwise ssh.
[[nodiscard]] std::string default_remote_shell(
    Scheduler scheduler, const std::vector<Host>& hosts,
    const std::function<bool(const std::string&)>& installed = is_in_path);

/// The environment for remote shells, "NAME=value" each: this process's without the variables by
/// which srun would change what passes through it or give an agent less than the job has on its
/// node, and with the one by which srun holds nothing back, also where a script of the user's
/// calls it.
[[nodiscard]] std::vector<std::string> starter_environment();

}  // namespace chainmail::launch
