// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a group is made.

#pragma once

#include <memory>
#include <vector>

#include "ops/core/failure/failure_news.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"

namespace chainmail::ops {

struct CommFactory;

/// Creates this rank's end of a group; collective over the ranks of `topology`. `rendezvous` must
/// be the group's own (no other group uses its keys). `global_ranks[i]` is the job's rank of group
/// rank i, for messages and news. Connections are made when first needed.
/// Throws InvalidArgument (kSingleNode over several nodes, MPI that cannot be used, encryption
/// without a secret or over MPI), TimeoutError, SystemError, MpiError.
[[nodiscard]] std::shared_ptr<Group> create_group(int rank, Topology topology,
                                                  std::shared_ptr<Rendezvous> rendezvous,
                                                  GroupOptions options,
                                                  std::vector<int> global_ranks = {},
                                                  std::shared_ptr<FailureNews> news = nullptr);

/// create_group() with another way to make Comms, for tests that need faults or counts.
[[nodiscard]] std::shared_ptr<Group> create_group_with(const CommFactory& factory, int rank,
                                                       Topology topology,
                                                       std::shared_ptr<Rendezvous> rendezvous,
                                                       GroupOptions options,
                                                       std::vector<int> global_ranks = {},
                                                       std::shared_ptr<FailureNews> news = nullptr);

}  // namespace chainmail::ops
