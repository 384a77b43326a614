// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that were told to use different transports (CHAINMAIL_LOCAL, CHAINMAIL_CROSS) wait for each
// other in different places. Each rank writes down what it uses, and who misses another one looks
// there: it costs nothing where ranks meet at once.

#pragma once

#include <memory>
#include <vector>

#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// The group's `rendezvous` as a RankLiveness that throws MismatchError, with both sides and the
/// variable to set, when it is asked about a rank that `rank` cannot meet.
[[nodiscard]] std::shared_ptr<Rendezvous> with_transport_check(
    std::shared_ptr<Rendezvous> rendezvous, int rank, const Topology& topology,
    const GroupOptions& options, const std::vector<int>& global_ranks);

}  // namespace chainmail::ops
