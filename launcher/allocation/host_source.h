// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The places that hosts of a job can come from. job_hosts.h asks them in order.
//
// All throw HostfileError for text that cannot be read with certainty and UsageError for a file
// that cannot be opened. Call from the main thread (launcher/process/fork_exec.h).

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/hostfile.h"
#include "launcher/job/environment.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

/// `--hostfile path`.
[[nodiscard]] HostSet hosts_in_file(const std::string& path, const HostfileRules& rules = {});

/// `-H value`: a file when it contains '/' or names one, otherwise a list. A file with the name of
/// this machine or of a `known` host is refused, since both could be meant.
[[nodiscard]] HostSet hosts_of_argument(const std::string& value, const HostfileRules& rules = {},
                                        const std::vector<Host>& known = {});

/// --host-discovery: runs `command` (program and arguments, no shell), as Horovod's and Kubernetes'
/// MPI operator's scripts are, and reads what it prints as a hostfile. Throws HostsError when it
/// cannot be run, fails, or has not ended after `limit`; it and what it started are gone then.
[[nodiscard]] HostSet discovered_hosts(const std::vector<std::string>& command,
                                       const HostfileRules& rules = {},
                                       std::chrono::milliseconds limit = std::chrono::seconds(30));

/// The hostfile that a variable names; nothing where it is not set.
[[nodiscard]] std::optional<HostSet> hosts_of_variable(const Environment& variables,
                                                       const std::string& name,
                                                       const HostfileRules& rules = {});

/// The hostfile that the variables of other launchers name; else the first of /etc/chainmail/hosts
/// and Open MPI's default hostfile, below `root`, that names a host.
[[nodiscard]] std::optional<HostSet> default_hosts(const Environment& variables,
                                                   const HostfileRules& rules = {},
                                                   const std::string& root = "");

/// This machine, a slot per processor that this process may use.
[[nodiscard]] HostSet this_machine();

}  // namespace chainmail::launch
