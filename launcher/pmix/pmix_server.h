// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// libpmix as the server of one job's ranks on one node. What other nodes must know leaves as
// messages, what they say comes in as messages.
//
// libpmix 4.2.2 hangs when clients are deregistered after a crash and when a finalize meets an
// abort, so nothing is ever deregistered or finalised; the process is killed instead.
//
// One server per process. handle() and expire_lookups() belong to one thread; `send` is called from
// libpmix's thread as well.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

using PmixSend = std::function<void(const MpiMessage&)>;

/// Starts libpmix and makes the job known to it. `given` is the environment that the agent gave to
/// its first rank: what libpmix would have given must be the same. Throws SystemError.
void start_pmix_server(const MpiOrder& order, const std::string& directory,
                       const std::vector<MpiEntry>& given, PmixSend send);

/// A message from the agent. Throws SystemError when it is not for a helper.
void handle_for_pmix(MpiMessage message);

/// Ends the lookups whose time is over. Returns the time until the next, if there is one.
std::optional<std::chrono::milliseconds> expire_pmix_lookups();

}  // namespace chainmail::launch
