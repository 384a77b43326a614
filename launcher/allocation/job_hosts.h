// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts of a job: the sources in order of precedence, what the scheduler allows, and the
// user's filters.
//
// Call from the main thread, once.

#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

struct HostRequest {
  std::string list_or_file;            ///< -H
  std::string hostfile;                ///< --hostfile
  std::vector<std::string> discovery;  ///< --host-discovery, program and arguments
  HostfileRules rules;                 ///< --hostfile-strict, --elastic
  std::string include;
  std::string exclude;
  std::vector<std::string> remote_shell = {"ssh"};  ///< --rsh, to ask a host for its cores ("n1:*")
};

/// -H or --hostfile, then --host-discovery, $CHAINMAIL_HOSTFILE, the scheduler, the hostfile that
/// other launchers' variables name, the system's default hostfile, this machine. Hosts that the
/// user names inside a scheduler's job must belong to it (this machine apart), and have at most its
/// slots. Throws UsageError and HostfileError.
[[nodiscard]] HostSet find_job_hosts(const HostRequest& request, const Environment& variables,
                                     const std::string& root = "");

}  // namespace chainmail::launch
