// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which rank runs where. Pure, thread-safe.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host.h"

namespace chainmail::launch {

struct PlacementOptions {
  std::optional<int> ranks = std::nullopt;     ///< default: one per slot
  std::optional<int> per_node = std::nullopt;  ///< ranks on each host, at most
  bool oversubscribe = false;
};

struct PlacedRank {
  int rank = 0;
  int node = 0;  ///< index into Placement::nodes
  int local_rank = 0;
};

/// Ranks are numbered host by host, so that the ranks of a node are neighbours.
struct Placement {
  std::vector<Host> nodes;  ///< hosts that have a rank, in order of first appearance
  std::vector<int> ranks_of_node;
  std::vector<PlacedRank> ranks;
};

/// Fills slots in host order; a host without written slots has one, or as many as `per_node`.
/// Throws UsageError when there are more ranks than slots (unless oversubscribe) or than max_slots
/// (always).
[[nodiscard]] Placement place_ranks(const std::vector<Host>& hosts,
                                    const PlacementOptions& options);

}  // namespace chainmail::launch
