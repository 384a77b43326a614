// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/comms/comm_set.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/threads/poll_until.h"
#include "ops/core/liveness.h"
#include "ops/engine/failure/rank_status.h"

namespace chainmail::ops {
namespace {

/// The group's rendezvous for making Comms: get() asks again and again instead of waiting inside,
/// so that it ends when the group fails.
class InterruptibleRendezvous final : public PrefixRendezvous, public RankLiveness {
 public:
  InterruptibleRendezvous(std::shared_ptr<Rendezvous> rendezvous,
                          std::shared_ptr<FailureState> failure)
      : PrefixRendezvous("", std::move(rendezvous)),
        liveness_(dynamic_cast<RankLiveness*>(&inner())),
        failure_(std::move(failure)) {}

  std::string get(const std::string& key, internal::Deadline deadline) override {
    std::optional<std::string> value;
    const auto is_set = [&] {
      failure_->rethrow_if_failed();
      value = try_get(key);
      return value.has_value();
    };
    if (!internal::poll_until(is_set, deadline)) {
      throw TimeoutError("rendezvous key \"" + key +
                         "\" was not set in time: a rank has not joined");
    }
    return *std::move(value);
  }

  std::optional<RankEnd> end_of(int rank) override {
    return liveness_ == nullptr ? std::nullopt : liveness_->end_of(rank);
  }

 private:
  RankLiveness* const liveness_;  // inner(), where it knows of ends
  const std::shared_ptr<FailureState> failure_;
};

}  // namespace

CommSet::CommSet(int rank, const Topology& topology, const GroupOptions& options,
                 std::vector<int> global_ranks, CommFactory factory,
                 std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<FailureState> failure)
    : rank_(rank),
      topology_(topology),
      options_(options),
      global_ranks_(std::move(global_ranks)),
      factory_(std::move(factory)),
      rendezvous_(
          std::make_shared<InterruptibleRendezvous>(std::move(rendezvous), std::move(failure))) {
  const int node = topology.node_of(rank);
  const int local_rank = topology.local_rank_of(rank);
  local_.is_on_node = true;
  local_.request.name = "local/" + std::to_string(node);
  local_.request.rank = local_rank;
  local_.request.ranks = topology.ranks_of_node(node);
  if (topology.node_count() > 1 && local_rank < topology.min_local_size()) {
    cross_.request.name = "cross/" + std::to_string(local_rank);
    cross_.request.rank = node;
    cross_.request.ranks = topology.ranks_across(local_rank);
  }
  flat_.request.name = "flat";
  flat_.request.rank = rank;
  flat_.request.ranks = all_ranks(topology.size());
  if (topology.node_count() == 1) {
    flat_place_ = &local_;
  } else if (topology.node_count() == topology.size()) {
    flat_place_ = &cross_;  // same members in the same order: no second set of connections
  }
}

std::string CommSet::host_of(int node, const OpContext& context) {
  if (node == topology_.node_of(rank_)) return options_.host;
  const auto [place, is_new] = hosts_.try_emplace(node);
  if (is_new) {
    try {
      // Its ranks write it when they make the group, about now; it is for messages only.
      constexpr std::chrono::seconds kPatience{2};
      const auto limit = std::min<std::chrono::milliseconds>(context.deadline.left(), kPatience);
      place->second = rendezvous_->get(host_key(node), internal::Deadline::after(limit));
    } catch (const TimeoutError&) {
      place->second = "node " + std::to_string(node);
    }
  }
  return place->second;
}

/// Adds what was not needed, or known, when the group was made.
CommRequest CommSet::complete(CommRequest request, const OpContext& context) {
  request.rendezvous = rendezvous_;
  request.on_one_node = std::all_of(request.ranks.begin(), request.ranks.end(), [&](int rank) {
    return topology_.node_of(rank) == topology_.node_of(rank_);
  });
  for (const int rank : request.ranks) {
    request.global_ranks.push_back(global_ranks_[static_cast<std::size_t>(rank)]);
    request.hosts.push_back(host_of(topology_.node_of(rank), context));
  }
  return request;
}

Comm* CommSet::local(const OpContext& context) { return get(local_, context); }
Comm* CommSet::cross(const OpContext& context) { return get(cross_, context); }
Comm* CommSet::flat(const OpContext& context) { return get(*flat_place_, context); }

Comm* CommSet::get(Place& place, const OpContext& context) {
  if (place.comm != nullptr) {  // only this thread writes it
    return place.comm.get();
  }
  if (place.request.ranks.size() < 2) return nullptr;
  const CommFactory::Make& make = place.is_on_node ? factory_.on_node : factory_.anywhere;
  std::unique_ptr<Comm> comm = make(complete(place.request, context), options_, context);
  const std::lock_guard lock(mutex_);
  place.comm = std::move(comm);
  if (is_aborted_) place.comm->abort();
  return place.comm.get();
}

template <typename Do>
void CommSet::for_each_comm(Do action) noexcept {
  const std::lock_guard lock(mutex_);
  for (Place* place : {&local_, &cross_, &flat_}) {
    if (place->comm != nullptr) action(place->comm);
  }
}

void CommSet::abort() noexcept {
  is_aborted_ = true;
  for_each_comm([](std::unique_ptr<Comm>& comm) { comm->abort(); });
}

void CommSet::close() noexcept {
  for_each_comm([](std::unique_ptr<Comm>& comm) { comm.reset(); });
}

void CommSet::leak() noexcept {
  // The child shares the parent's connections: closing them in order would end the parent's.
  for_each_comm([](std::unique_ptr<Comm>& comm) { static_cast<void>(comm.release()); });
}

}  // namespace chainmail::ops
