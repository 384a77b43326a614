// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What --dry-run prints. Pure but for reading this machine's cores.

#pragma once

#include <string>

#include "launcher/hosts/host.h"
#include "launcher/placement.h"

namespace chainmail::launch {

/// For people: source, hosts, ranks.
[[nodiscard]] std::string plan_text(const HostSet& hosts, const Placement& placement);

/// `{"source", "hosts": [{"name", "slots", "max_slots", "user", "port"}], "ranks": [{"rank",
/// "host", "local_rank", "cpus"}]}`. What is not given is null; `cpus` is a list for ranks on this
/// machine and null for other hosts, whose agents share out the cores when they start.
[[nodiscard]] std::string plan_json(const HostSet& hosts, const Placement& placement);

}  // namespace chainmail::launch
