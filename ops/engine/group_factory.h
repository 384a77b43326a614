// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// create_group with another way to make Comms, for tests that need faults or counts.

#pragma once

#include <memory>
#include <vector>

#include "ops/engine/comm_factory.h"
#include "ops/engine/group.h"

namespace chainmail::ops {

[[nodiscard]] std::shared_ptr<Group> create_group_with(const CommFactory& factory, int rank,
                                                       Topology topology,
                                                       std::shared_ptr<Rendezvous> rendezvous,
                                                       GroupOptions options,
                                                       std::vector<int> global_ranks = {},
                                                       std::shared_ptr<FailureNews> news = nullptr);

}  // namespace chainmail::ops
