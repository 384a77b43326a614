// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace chainmail::ops {
namespace {

using Pieces = std::vector<std::vector<ShardRange>>;

Pieces pieces_of(const ShardCut& cut, std::span<const int> ranks) {
  Pieces pieces;
  for (const int rank : ranks) pieces.push_back(cut.pieces_of(rank));
  return pieces;
}

/// What each node's ranks make of theirs.
Pieces pieces_of_nodes(const ShardCut& cut, const Topology& topology) {
  Pieces pieces;
  for (int node = 0; node < topology.node_count(); ++node) {
    const ShardLevel level(cut.tree, pieces_of(cut, topology.ranks_of_node(node)));
    pieces.push_back(level.sum.results);
  }
  return pieces;
}

}  // namespace

ShardLevel::ShardLevel(const ShardTree& tree, std::vector<std::vector<ShardRange>> by_rank)
    : pieces(std::move(by_rank)) {
  std::vector<ShardRange> all;
  for (const auto& own : pieces) all.insert(all.end(), own.begin(), own.end());
  piece_count = all.size();
  order.resize(piece_count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return all[a].begin < all[b].begin; });
  is_one_each =
      std::is_sorted(order.begin(), order.end()) &&
      std::all_of(pieces.begin(), pieces.end(), [](const auto& own) { return own.size() == 1; });
  std::vector<ShardRange> sources;
  for (const std::size_t i : order) sources.push_back(all[i]);
  sum = plan_sum(tree, sources);
}

ShardPlan::ShardPlan(const ShardCut& cut, const Topology& topology, int rank)
    : flat_(cut.tree, pieces_of(cut, all_ranks(topology.size()))),
      local_(cut.tree, pieces_of(cut, topology.ranks_of_node(topology.node_of(rank)))),
      cross_(cut.tree, pieces_of_nodes(cut, topology)) {}

}  // namespace chainmail::ops
