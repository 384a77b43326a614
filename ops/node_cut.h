// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the ranks of each node share a tensor that is the same on every node: local rank r owns one
// slice of it. Or how all ranks of the job share it.
//
// Values; any thread.

#pragma once

#include <cstddef>
#include <vector>

#include "ops/topology.h"

namespace chainmail::ops {

struct NodeCut {
  /// Local rank r of every node owns the elements bounds[r] to bounds[r + 1]. One more bound than
  /// the smallest node has ranks; local ranks beyond those own nothing.
  std::vector<std::size_t> bounds{0, 0};
  /// Elements from here on reach every rank.
  std::size_t common_from = 0;
  /// A local rank's slice is shared among the nodes, too: with n nodes local rank r of node j owns
  /// the elements bounds[r * n + j] to the next bound, and there are n times as many slices.
  bool is_over_nodes = false;

  /// Throws InvalidArgument unless the bounds ascend from 0 to `count`, for the nodes of
  /// `topology`, and the common elements lie within.
  void check(std::size_t count, const Topology& topology) const;
  /// Slices that may hold something.
  [[nodiscard]] std::size_t owners() const noexcept { return bounds.size() - 1; }
  /// The cut by local ranks alone.
  [[nodiscard]] NodeCut within_nodes(const Topology& topology) const;
};

/// Which slice of such cuts belongs to `rank`; as many as there are slices for one without.
[[nodiscard]] std::size_t slice_of_rank(const Topology& topology, int rank, bool is_over_nodes);
/// How many slices such cuts have.
[[nodiscard]] std::size_t slice_count(const Topology& topology, bool is_over_nodes);

}  // namespace chainmail::ops
