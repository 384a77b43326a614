// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a WorldMachine is made of: the command line, and the log of earlier jobs on the same file;
// and what the allowed sizes make of hosts.
//
// Pure functions.

#pragma once

#include <string>
#include <vector>

#include "base/membership/world/host_table.h"
#include "base/membership/world/world_events.h"
#include "base/membership/world/world_options.h"
#include "launcher/controller/elastic/machine/world_log.h"
#include "launcher/job/host.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

[[nodiscard]] membership::WorldOptions world_options(const Options& options);

/// Of a job on a hosts file that another one has used. Its steps are the launcher's own count:
/// where the program goes on, its checkpoint says.
[[nodiscard]] membership::ResumePoint resume_point(const PastLog& past, const Options& options);

/// Whether members would have to be started or drained, if these were the hosts.
[[nodiscard]] bool changes_size(const membership::HostTable& before, const std::vector<Host>& hosts,
                                const Options& options);

/// For people; empty where there are no more slots than ranks and spares may be.
[[nodiscard]] std::string why_slots_stay_empty(const membership::HostsRead& hosts,
                                               const Options& options);

}  // namespace chainmail::launch
