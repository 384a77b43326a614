// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the ranks of each Comm bring to a sum of shards, and in which order it is added there.
//
// Values; any thread. Depends on what all ranks know, so that they agree without a message.

#pragma once

#include <cstddef>
#include <vector>

#include "ops/shard_tree.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// The pieces that meet in one Comm.
struct ShardLevel {
  /// `pieces`: by rank of the Comm.
  ShardLevel(const ShardTree& tree, std::vector<std::vector<ShardRange>> pieces);

  std::vector<std::vector<ShardRange>> pieces;
  std::size_t piece_count = 0;     ///< of all ranks
  std::vector<std::size_t> order;  ///< counted rank by rank: which of them is the i-th source
  TreeSum sum;                     ///< of the sources
  bool is_one_each = false;        ///< every rank brings one, in the order of the shards
};

/// Of one rank.
class ShardPlan {
 public:
  /// `cut` was checked for the topology's ranks.
  ShardPlan(const ShardCut& cut, const Topology& topology, int rank);

  [[nodiscard]] const ShardLevel& flat() const noexcept { return flat_; }    ///< all ranks
  [[nodiscard]] const ShardLevel& local() const noexcept { return local_; }  ///< of this node
  [[nodiscard]] const ShardLevel& cross() const noexcept { return cross_; }  ///< the nodes

 private:
  ShardLevel flat_;
  ShardLevel local_;
  ShardLevel cross_;
};

}  // namespace chainmail::ops
