// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/transfers/transfers.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "ops/engine/failure/rank_status.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

// What is written down when a transfer takes long should fit a small message.
constexpr std::size_t kMostPending = 128;
// How long one engine is driven before the next one's turn.
constexpr milliseconds kTurn{10};
// What the hosts' names may take in all, however many there are: other threads wait meanwhile.
constexpr milliseconds kNamesLimit{250};

/// "node 1" for a host that is not known by the deadline.
std::string host_name(Rendezvous& rendezvous, int node, const internal::Deadline& deadline) {
  const std::string unknown = "node " + std::to_string(node);
  if (deadline.has_passed()) return unknown;
  try {
    return rendezvous.try_get(host_key(node), deadline).value_or(unknown);
  } catch (const TimeoutError&) {
    return unknown;
  }
}

/// Completes a request with what is for messages only, as far as it is known.
void name_ranks(CommRequest& request, int rank, const Topology& topology,
                const GroupOptions& options, const std::vector<int>& global_ranks) {
  std::map<int, std::string> hosts{{topology.node_of(rank), options.host}};
  const auto deadline = request.rendezvous->patience(kNamesLimit);
  for (const int member : request.ranks) {
    const int node = topology.node_of(member);
    const auto [place, is_new] = hosts.try_emplace(node);
    if (is_new) place->second = host_name(*request.rendezvous, node, deadline);
    request.hosts.push_back(place->second);
    request.global_ranks.push_back(global_ranks[static_cast<std::size_t>(member)]);
  }
  request.on_one_node = hosts.size() == 1;
}

/// Where no threads can be had. False when `limit` passed first.
bool drive_in_turn(const std::vector<std::shared_ptr<TransferEngine>>& engines,
                   const TransferOperation& operation, milliseconds limit) {
  const auto deadline = internal::Deadline::after(limit);
  while (!operation.is_done() && !deadline.has_passed()) {
    for (const auto& engine : engines) {
      if (engine->wait(operation, std::min(kTurn, deadline.left()))) break;
    }
  }
  return operation.is_done();
}

}  // namespace

Transfers::Transfers(int rank, const Topology& topology, const GroupOptions& options,
                     const std::vector<int>& global_ranks, const CommFactory& factory,
                     const std::shared_ptr<Rendezvous>& rendezvous,
                     const std::shared_ptr<CallbackExecutor>& executor,
                     const TransferEngine::OnBroken& on_broken) {
  const int node = topology.node_of(rank);
  const bool has_own_way_on_node = factory.transport_on_node != nullptr;
  const auto add_engine = [&](CommRequest request, const CommFactory::MakeTransport& make,
                              bool is_for_node) {
    TransferEnginePlan plan;
    bool serves_anybody = false;
    for (const int member : request.ranks) {
      const bool is_on_node = topology.node_of(member) == node;
      const bool is_served = member != rank && (is_on_node == is_for_node || !has_own_way_on_node);
      plan.is_served.push_back(is_served);
      serves_anybody = serves_anybody || is_served;
    }
    if (!serves_anybody) return;
    plan.ranks = request.ranks;
    plan.serves_all =
        std::count(plan.is_served.begin(), plan.is_served.end(), true) == topology.size() - 1;
    request.rendezvous = rendezvous;
    // Copies: operations that users hold may outlive the group.
    plan.make = [request = std::move(request), make, rank, topology, options, global_ranks] {
      CommRequest complete = request;
      name_ranks(complete, rank, topology, options, global_ranks);
      return make(complete, options);
    };
    engines_.push_back(std::make_shared<TransferEngine>(std::move(plan), executor, on_broken));
  };
  if (has_own_way_on_node) {
    CommRequest request;
    request.name = "transfers/" + std::to_string(node);
    request.rank = topology.local_rank_of(rank);
    request.ranks = topology.ranks_of_node(node);
    add_engine(std::move(request), factory.transport_on_node, true);
  }
  CommRequest request;
  request.name = "transfers";
  request.rank = rank;
  for (int member = 0; member < topology.size(); ++member) request.ranks.push_back(member);
  add_engine(std::move(request), factory.transport_anywhere, false);
}

std::shared_ptr<TransferOperation> Transfers::submit(Collective collective, Plan plan,
                                                     milliseconds timeout) {
  const bool is_open = is_from_any_rank(collective);
  if (is_open) {
    const std::lock_guard lock(mutex_);
    plan.header.sequence = open_counts_[collective.tag]++;
  }
  const auto operation = std::make_shared<TransferOperation>(
      shared_from_this(), std::move(collective), std::move(plan), timeout);
  try {
    for (const auto& engine : engines_) {
      if (is_open || engine->serves(operation->collective.root)) engine->submit(operation);
    }
  } catch (...) {
    // An engine that has taken a receive from any rank before drops what it finds claimed. Where it
    // was first, the transfer is under way or has ended.
    if (operation->claim()) throw;
  }
  return operation;
}

void Transfers::wait(TransferOperation& operation, std::optional<milliseconds> limit) {
  const milliseconds time = internal::Deadline::bounded(limit.value_or(milliseconds::max()));
  bool is_in_time = true;
  if (!is_from_any_rank(operation.collective) || engines_.size() == 1) {
    for (const auto& engine : engines_) {
      if (engines_.size() == 1 || engine->serves(operation.collective.root)) {
        is_in_time = engine->wait(operation, time);
      }
    }
  } else {
    // It is not known whose it will be: their threads do the work.
    bool have_threads = true;
    for (const auto& engine : engines_) have_threads = engine->call_thread() && have_threads;
    is_in_time =
        have_threads ? operation.sleep_until_done(time) : drive_in_turn(engines_, operation, time);
  }
  if (!is_in_time) {
    throw TimeoutError(std::string(to_string(operation.collective.kind)) +
                       " Timed out waiting: it has not ended within the " +
                       std::to_string(time.count()) + " ms that the caller would wait; it goes on");
  }
}

bool Transfers::drain(milliseconds limit) {
  const auto deadline = internal::Deadline::after(limit);
  for (const auto& engine : engines_) {
    if (!engine->drain(deadline.left())) return false;
  }
  return true;
}

std::vector<std::shared_ptr<PlannedOperation>> Transfers::pending() const {
  std::vector<std::shared_ptr<PlannedOperation>> list;
  for (const auto& engine : engines_) engine->list_pending(list, kMostPending);
  return list;
}

std::vector<PastOperation> Transfers::past() const {
  std::vector<PastOperation> list;
  for (const auto& engine : engines_) engine->list_past(list);
  return list;
}

}  // namespace chainmail::ops
