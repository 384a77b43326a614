// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/node_cut.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace chainmail::ops {

void NodeCut::check(std::size_t count, const Topology& topology) const {
  const std::size_t wanted = slice_count(topology, is_over_nodes) + 1;
  if (bounds.size() != wanted) {
    throw InvalidArgument("a cut with " + std::to_string(bounds.size()) + " bounds over " +
                          topology.describe() + "; its smallest node needs " +
                          std::to_string(wanted));
  }
  if (bounds.front() != 0 || bounds.back() != count ||
      !std::is_sorted(bounds.begin(), bounds.end())) {
    std::string text;
    for (const std::size_t bound : bounds) text += " " + std::to_string(bound);
    throw InvalidArgument("a cut of " + std::to_string(count) +
                          " elements must ascend from 0 to all of them, not" + text);
  }
  if (common_from > count) {
    throw InvalidArgument("common elements from " + std::to_string(common_from) + " on of " +
                          std::to_string(count));
  }
}

NodeCut NodeCut::within_nodes(const Topology& topology) const {
  if (!is_over_nodes) return *this;
  NodeCut within;
  within.common_from = common_from;
  within.bounds.clear();
  const auto nodes = static_cast<std::size_t>(topology.node_count());
  for (std::size_t b = 0; b < bounds.size(); b += nodes) within.bounds.push_back(bounds[b]);
  return within;
}

std::size_t slice_count(const Topology& topology, bool is_over_nodes) {
  return static_cast<std::size_t>(topology.min_local_size()) *
         static_cast<std::size_t>(is_over_nodes ? topology.node_count() : 1);
}

std::size_t slice_of_rank(const Topology& topology, int rank, bool is_over_nodes) {
  const int local = topology.local_rank_of(rank);
  if (local >= topology.min_local_size()) return slice_count(topology, is_over_nodes);
  if (!is_over_nodes) return static_cast<std::size_t>(local);
  return static_cast<std::size_t>(local * topology.node_count() + topology.node_of(rank));
}

}  // namespace chainmail::ops
