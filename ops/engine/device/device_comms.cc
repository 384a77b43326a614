// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/device_comms.h"

#include <algorithm>
#include <utility>

namespace chainmail::ops {
namespace {

constexpr int kFirstVersionThatSplits = 21800;

/// Ranks of equal local rank, by node; `rank` alone where the smallest node has no such local rank.
std::vector<int> peers_across(const Topology& topology, int rank) {
  const int local_rank = topology.local_rank_of(rank);
  if (local_rank >= topology.min_local_size()) return {rank};
  return topology.ranks_across(local_rank);
}

}  // namespace

DeviceComms::DeviceComms(NcclApi& api, std::shared_ptr<Rendezvous> rendezvous,
                         const Topology& topology, int rank, const DeviceGroupOptions& options,
                         std::string name)
    : api_(api),
      rendezvous_(std::move(rendezvous)),
      topology_(topology),
      rank_(rank),
      options_(options),
      name_(std::move(name)) {}

StreamComms DeviceComms::need(bool is_hierarchical, const NcclWait& wait) {
  if (flat_ == nullptr && topology_.size() > 1) {
    const NcclMember everybody = member("flat", all_ranks(topology_.size()));
    flat_ = keep(NcclComm::join(api_, everybody, *rendezvous_, config("flat"), wait));
  }
  if (is_hierarchical && !has_hierarchy_) {
    make_hierarchy(wait);
    has_hierarchy_ = true;
  }
  return {&topology_, rank_, flat_.get(), local_.get(), cross_.get()};
}

void DeviceComms::make_hierarchy(const NcclWait& wait) {
  const bool splits = options_.splits_communicators && api_.version() >= kFirstVersionThatSplits;
  const auto make_part = [&](const std::string& kind, int color, const std::vector<int>& ranks) {
    const std::string name = kind + "/" + std::to_string(color);
    const bool is_alone = ranks.size() == 1;
    // A rank alone in its part has nobody to talk to, but every rank takes part in the split.
    if (splits) {
      return keep(flat_->split(is_alone ? -1 : color, member(name, ranks), config(name), wait));
    }
    return is_alone
               ? nullptr
               : keep(NcclComm::join(api_, member(name, ranks), *rendezvous_, config(name), wait));
  };
  const int node = topology_.node_of(rank_);
  local_ = make_part("local", node, topology_.ranks_of_node(node));
  cross_ = make_part("cross", topology_.local_rank_of(rank_), peers_across(topology_, rank_));
}

std::shared_ptr<NcclComm> DeviceComms::make_pair(int from, int to, const NcclWait& wait) {
  const std::string name = "from/" + std::to_string(from) + "/to/" + std::to_string(to);
  return keep(NcclComm::join(api_, member(name, {from, to}), *rendezvous_, config(name), wait),
              &DeviceComms::pairs_);
}

std::shared_ptr<NcclComm> DeviceComms::keep(std::unique_ptr<NcclComm> comm,
                                            List DeviceComms::*list) {
  if (comm == nullptr) return nullptr;
  std::shared_ptr<NcclComm> kept = std::move(comm);
  const std::lock_guard lock(mutex_);
  (this->*list).push_back(kept);
  // An abort that came while it was being made.
  if (is_aborted_) kept->abort();
  return kept;
}

NcclMember DeviceComms::member(const std::string& name, const std::vector<int>& ranks) const {
  NcclMember member;
  member.name = name;
  member.rank = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  for (const int rank : ranks) {
    member.global_ranks.push_back(options_.global_ranks.empty()
                                      ? rank
                                      : options_.global_ranks[static_cast<std::size_t>(rank)]);
  }
  return member;
}

NcclConfig DeviceComms::config(const std::string& name) const {
  NcclConfig config;
  config.is_blocking = options_.is_blocking;
  config.max_ctas = options_.max_ctas;
  // NCCL runs the work of communicators that share resources one after the other, whatever their
  // streams: no local step would overlap a cross step.
  config.shares_resources = false;
  config.name = name_ + "/" + name;
  return config;
}

DeviceComms::List DeviceComms::of_collectives() {
  const std::lock_guard lock(mutex_);
  return comms_;
}

DeviceComms::List DeviceComms::all() {
  const std::lock_guard lock(mutex_);
  List both = comms_;
  both.insert(both.end(), pairs_.begin(), pairs_.end());
  return both;
}

std::exception_ptr DeviceComms::state() noexcept {
  for (const auto& comm : all()) {
    if (std::exception_ptr error = comm->state(); error != nullptr) return error;
  }
  return nullptr;
}

void DeviceComms::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
  }
  for (const auto& comm : all()) comm->abort();
}

void DeviceComms::destroy(const NcclWait& wait) {
  // Children before their parent.
  auto comms = all();
  for (auto comm = comms.rbegin(); comm != comms.rend(); ++comm) (*comm)->destroy(wait);
}

}  // namespace chainmail::ops
