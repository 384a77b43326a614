// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One world of a job after the other: until one ends well, or no restart (--max-restarts,
// --elastic) is left.
//
// The main thread's.

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "launcher/controller/outside/job_observer.h"
#include "launcher/controller/state/job_end.h"
#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

struct WorldsEnd {
  JobEnd end;                     ///< of the last one
  std::uint32_t generations = 0;  ///< how many there were
};

/// How long ranks of a host that was lost may go on, until they end by themselves.
[[nodiscard]] std::chrono::milliseconds time_of_lost_hosts(const Options& options);

/// `ignored_signals`: by the launcher's caller. `first_generation`: how many worlds the job had
/// before. Throws UsageError, HostsError and SystemError before anything is started.
[[nodiscard]] WorldsEnd run_worlds(const Options& options, const HostSet& hosts,
                                   const Placement& placement,
                                   const std::vector<int>& ignored_signals,
                                   const JobObserver& observer = {},
                                   std::uint32_t first_generation = 0);

}  // namespace chainmail::launch
