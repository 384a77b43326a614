// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/topology.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace chainmail::ops {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Topology Topology::from_node_ids(std::span<const std::string> node_ids) {
  if (node_ids.empty()) {
    throw InvalidArgument("a topology needs at least one rank; got an empty list of node ids");
  }
  Topology topology;
  std::map<std::string, int> node_of_id;
  for (std::size_t rank = 0; rank < node_ids.size(); ++rank) {
    const auto [entry, is_new] =
        node_of_id.emplace(node_ids[rank], static_cast<int>(topology.ranks_of_node_.size()));
    if (is_new) topology.ranks_of_node_.emplace_back();
    auto& ranks = topology.ranks_of_node_[static_cast<std::size_t>(entry->second)];
    topology.node_of_.push_back(entry->second);
    topology.local_rank_of_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  std::size_t smallest = node_ids.size();
  for (const auto& ranks : topology.ranks_of_node_) smallest = std::min(smallest, ranks.size());
  topology.min_local_size_ = static_cast<int>(smallest);
  return topology;
}

Topology Topology::single_node(int size) { return from_node_sizes({&size, 1}); }

Topology Topology::from_node_sizes(std::span<const int> sizes) {
  std::vector<std::string> ids;
  for (std::size_t node = 0; node < sizes.size(); ++node) {
    if (sizes[node] < 1) {
      throw InvalidArgument("node " + std::to_string(node) + " of a topology has " +
                            std::to_string(sizes[node]) + " ranks; every node needs at least one");
    }
    ids.insert(ids.end(), static_cast<std::size_t>(sizes[node]), std::to_string(node));
  }
  return from_node_ids(ids);
}

std::vector<int> Topology::ranks_across(int local_rank) const {
  std::vector<int> across;
  for (const auto& ranks : ranks_of_node_) {
    across.push_back(ranks.at(static_cast<std::size_t>(local_rank)));
  }
  return across;
}

Topology Topology::subset(std::span<const int> ranks) const {
  std::vector<std::string> ids;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      throw InvalidArgument("rank " + std::to_string(rank) + " of a subset is not one of the " +
                            std::to_string(size()) + " ranks 0.." + std::to_string(size() - 1));
    }
    ids.push_back(std::to_string(node_of(rank)));
  }
  return from_node_ids(ids);
}

std::string Topology::describe() const {
  const auto plural = [](std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  const std::size_t first = ranks_of_node_.empty() ? 0 : ranks_of_node_.front().size();
  const bool is_even = std::all_of(ranks_of_node_.begin(), ranks_of_node_.end(),
                                   [first](const auto& ranks) { return ranks.size() == first; });
  if (is_even) return plural(ranks_of_node_.size(), "node") + " x " + plural(first, "rank");
  std::string text = "nodes of ";
  for (const auto& ranks : ranks_of_node_) {
    if (text.back() != ' ') text += "+";
    text += std::to_string(ranks.size());
  }
  return text + " ranks";
}

}  // namespace chainmail::ops
