// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which rank sits on which node: nodes x local ranks, uneven nodes included.
//
// An immutable value. Nodes are numbered by their smallest rank, local ranks by rank, as in
// ChainerMN (intra_rank, inter_rank), whatever order the hostfile had.

#pragma once

#include <span>
#include <string>
#include <vector>

namespace chainmail::ops {

/// 0 to size - 1.
[[nodiscard]] std::vector<int> all_ranks(int size);

class Topology {
 public:
  /// `node_ids[r]` is any label of rank r's node (host name, node index); equal labels share a
  /// node. Throws InvalidArgument when empty.
  [[nodiscard]] static Topology from_node_ids(std::span<const std::string> node_ids);
  /// All ranks on one node.
  [[nodiscard]] static Topology single_node(int size);
  /// Ranks 0..sizes[0]-1 on node 0, and so on: {3, 1} is "3+1".
  [[nodiscard]] static Topology from_node_sizes(std::span<const int> sizes);

  int size() const noexcept { return static_cast<int>(node_of_.size()); }
  int node_count() const noexcept { return static_cast<int>(ranks_of_node_.size()); }
  int node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
  int local_rank_of(int rank) const { return local_rank_of_.at(static_cast<std::size_t>(rank)); }
  /// Ranks of a node in ascending order; the first is its leader.
  const std::vector<int>& ranks_of_node(int node) const {
    return ranks_of_node_.at(static_cast<std::size_t>(node));
  }
  /// The rank of that local rank on every node, by node; each must have one.
  [[nodiscard]] std::vector<int> ranks_across(int local_rank) const;
  /// Local ranks on the smallest node: two_dimensional splits into this many slices.
  int min_local_size() const noexcept { return min_local_size_; }
  /// The topology of a subset of ranks, renumbered in the order given.
  [[nodiscard]] Topology subset(std::span<const int> ranks) const;
  /// "2 nodes x 4 ranks" or "nodes of 3+1 ranks".
  [[nodiscard]] std::string describe() const;

 private:
  std::vector<int> node_of_;
  std::vector<int> local_rank_of_;
  std::vector<std::vector<int>> ranks_of_node_;
  int min_local_size_ = 0;
};

}  // namespace chainmail::ops
