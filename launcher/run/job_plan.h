// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// From what was asked for to hosts and ranks. Starts nothing, but for what asks hosts for their
// cores.

#pragma once

#include <string>

#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

/// The hosts of one program of the job, or of the job. Throws HostsError and UsageError.
[[nodiscard]] HostSet hosts_of(const Options& options, const Application& program);

/// On standard error, what a user should know about the choice.
void say_notes(const HostSet& hosts);

/// Where ranks go. What depends on that is completed: hosts of further programs in `hosts`, the
/// first ranks of an elastic job and the remote shell in `options`. Throws UsageError.
[[nodiscard]] Placement place_ranks(Options& options, HostSet& hosts);

/// For who asks for encryption: what it does not cover. Empty where there is nothing to say.
[[nodiscard]] std::string warning_of_open_channel(const Options& options,
                                                  const Placement& placement);

}  // namespace chainmail::launch
