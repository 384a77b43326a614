// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What `launcher status`, `add` and `drain` are answered with.
//
// Pure functions; one thread, the machine's.

#pragma once

#include <string>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/hosts/hosts_edit.h"
#include "launcher/jobs/job_request.h"

namespace chainmail::launch {

[[nodiscard]] JobStatus status_of(const membership::WorldMachine& machine, const JobState& job,
                                  const std::string& hosts_file);

/// Whether ranks of -n are on the host of that name.
[[nodiscard]] bool is_base(const membership::WorldMachine& machine, const std::string& host);

/// What happens by these, for the user; `machine` has not heard of them. `hosts_file` may be empty.
[[nodiscard]] std::vector<std::string> words_of(const std::vector<HostsEdit>& edits,
                                                const std::string& hosts_file,
                                                const membership::WorldMachine& machine);

}  // namespace chainmail::launch
