// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which rank runs where. Pure, thread-safe.

#pragma once

#include <optional>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

struct PlacementOptions {
  std::optional<int> ranks = std::nullopt;     ///< default: one per slot
  std::optional<int> per_node = std::nullopt;  ///< ranks on each host, at most
  bool oversubscribe = false;
  MapBy map_by = MapBy::kSlot;
  std::optional<MapBy> rank_by = std::nullopt;  ///< how ranks are numbered; default: as map_by
};

struct PlacedRank {
  int rank = 0;
  int node = 0;  ///< index into Placement::nodes
  int local_rank = 0;
  int application = 0;  ///< which program of the command line
};

/// Ranks in order, local ranks of a node in the order of its ranks. By slot, which is the default,
/// the ranks of a node are neighbours; by node, or with several programs, they need not be.
struct Placement {
  std::vector<Host> nodes;  ///< hosts that have a rank, in order of first appearance
  std::vector<int> ranks_of_node;
  std::vector<PlacedRank> ranks;
};

/// One program among several.
struct ApplicationPlacement {
  std::vector<Host> hosts;  ///< its own; none: what the first program has left of its hosts
  std::optional<int> ranks = std::nullopt;
  std::optional<int> per_node = std::nullopt;
};

/// Fills slots in host order; a host without written slots has one, or as many as `per_node`. By
/// node, each host gets a rank in turn as long as it has slots left.
/// Throws UsageError when there are more ranks than slots (unless oversubscribe) or than max_slots
/// (always).
/// The programs come one after the other, ranks counted through. The first one must have hosts;
/// `options.ranks` and `options.per_node` are not looked at.
[[nodiscard]] Placement place_applications(const std::vector<ApplicationPlacement>& applications,
                                           const PlacementOptions& options);

}  // namespace chainmail::launch
