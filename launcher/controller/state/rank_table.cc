// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/rank_table.h"

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "launcher/job/text.h"

namespace chainmail::launch {

RankTable::RankTable(const Placement& placement, std::string noun) : noun_(std::move(noun)) {
  for (const Host& node : placement.nodes) (void)add_node(node.name);
  for (const PlacedRank& rank : placement.ranks) {
    (void)add_rank(static_cast<std::uint32_t>(rank.node));
  }
}

std::uint32_t RankTable::add_node(std::string host) {
  hosts_.push_back(std::move(host));
  return static_cast<std::uint32_t>(hosts_.size() - 1);
}

std::uint32_t RankTable::add_rank(std::uint32_t node) {
  ranks_.emplace_back().node = node;
  return size() - 1;
}

std::uint32_t RankTable::checked(std::uint32_t node, std::uint32_t rank) const {
  if (rank >= ranks_.size()) {
    throw SystemError("agent protocol: there is no rank " + std::to_string(rank), EPROTO);
  }
  if (ranks_[rank].node != node) {
    throw SystemError("agent protocol: rank " + std::to_string(rank) + " is on host " +
                          host_of(rank) + ", not on " + hosts_[node],
                      EPROTO);
  }
  return rank;
}

std::vector<std::uint32_t> RankTable::nodes() const {
  std::vector<std::uint32_t> nodes;
  for (const Rank& rank : ranks_) nodes.push_back(rank.node);
  return nodes;
}

EventLog::Members RankTable::about(std::uint32_t rank) const {
  return {{"rank", rank}, {"host", host_of(rank)}};
}

std::string RankTable::name_of(std::uint32_t rank) const {
  return noun_ + " " + std::to_string(rank) + " on host " + host_of(rank);
}

std::string RankTable::names_of(const std::vector<std::uint32_t>& ranks) const {
  if (ranks.empty()) return "all " + noun_ + "s";
  std::vector<std::string> names;
  for (const std::uint32_t rank : ranks) {
    names.push_back(std::to_string(rank) + " on host " + host_of(rank));
  }
  return noun_ + (ranks.size() == 1 ? " " : "s ") + listed(names);
}

std::string RankTable::gone_text() const {
  std::vector<std::uint32_t> gone;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    if (ranks_[rank].is_gone) gone.push_back(rank);
  }
  return gone.empty() ? "" : "; " + names_of(gone) + " ended before, with code 0";
}

}  // namespace chainmail::launch
