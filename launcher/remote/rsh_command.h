// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The command line that opens a shell on another host. Pure functions.

#pragma once

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

}  // namespace chainmail::launch
