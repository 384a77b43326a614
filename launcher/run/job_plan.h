// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// From what was asked for to hosts and ranks. Starts nothing, but for what asks hosts for their
// cores.

#pragma once

#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

/// The hosts of one program of the job, or of the job. Says on stderr what a user should know about
/// the choice. Throws HostsError and UsageError.
[[nodiscard]] HostSet hosts_of(const Options& options, const Application& program);

/// Of an elastic job: whether the hosts can be followed, and a rank per slot, as many as are
/// allowed. Throws UsageError.
void complete_elastic_hosts(HostSet& hosts, Options& options);

/// Where ranks go; hosts of further programs are added to `hosts`. Throws UsageError.
[[nodiscard]] Placement place_ranks(const Options& options, HostSet& hosts);

}  // namespace chainmail::launch
