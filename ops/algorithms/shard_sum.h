// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An all-reduce whose sums follow the tree of the shards (ops/shard_tree.h), so that its bits
// depend on the number of shards alone: not on the ranks, nodes, algorithm, chunks or transports.
//
// flat, naive, single_node: every rank owns a slice of the tensor; the others' pieces of it go to
// it, it adds them, and gives the result to all. hierarchical and two_dimensional: first the owners
// of each node add its ranks' pieces as far as they go; then every owner's slice is divided among
// the nodes in the same way. With K pieces per node, N nodes and S bytes a node sends
// (K + 1) S (N - 1) / N; with a 16-bit wire half of that, without loss: what is sent was rounded
// when it was added.

#pragma once

#include <cstddef>
#include <span>

#include "ops/algorithms/all_reduce.h"
#include "ops/algorithms/shard_plan.h"
#include "ops/comm/comm.h"
#include "ops/types.h"

namespace chainmail::ops {

/// What one rank brings. `pieces`, of `count` elements each, are its nodes of the tree in ascending
/// order; on a 16-bit wire they were rounded as they were added (round_as_sent()).
struct ShardContribution {
  std::span<std::byte* const> pieces;
  std::byte* output = nullptr;  ///< where the sum goes; may be one of `pieces`
  std::size_t count = 0;
  DataType dtype = DataType::kFloat32;
  WireFormat wire = WireFormat::kNative;
};

/// As all_reduce() (all_reduce.h), of the tree's root. What is in `pieces` afterwards is undefined.
void all_reduce_shards(Algorithm algorithm, const Comms& comms, const ShardPlan& plan,
                       const ShardContribution& own, const OpContext& context,
                       std::size_t chunk_bytes);

}  // namespace chainmail::ops
