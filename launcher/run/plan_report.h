// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What --dry-run prints. Reads this machine's cores and environment.

#pragma once

#include <string>

#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

struct Plan {
  const Options& options;
  const HostSet& hosts;
  const Placement& placement;
};

/// For people: source, hosts, ranks with their processors and variables.
[[nodiscard]] std::string plan_text(const Plan& plan);

/// `{"source", "notes", "program", "hosts": [{"name", "slots", "max_slots", "user", "port",
/// "is_this_machine"}], "ranks": [{"rank", "host", "local_rank", "node_rank", "cpus",
/// "environment", "inherits"}]}`. What is not given is null; `cpus` is a list for ranks on this
/// machine and null for other hosts, whose agents share out the cores when they start.
/// `environment` is what the launcher sets on top of what a rank `inherits`: "launcher" or "login";
/// null for what only the start decides.
[[nodiscard]] std::string plan_json(const Plan& plan);

}  // namespace chainmail::launch
