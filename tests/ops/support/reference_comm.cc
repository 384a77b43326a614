// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/reference_comm.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "ops/comm/combine.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::test {
namespace {

using ops::OpContext;
using ops::Reduction;

void check(const ReferenceExchange::Step& mine, const ReferenceExchange::Step& other) {
  if (!mine.header.matches(other.header)) {
    throw MismatchError(mine.header.describe() + " against " + other.header.describe());
  }
}

/// Elements [start, start + count) of everybody's data, reduced as the wire asks for.
std::vector<std::byte> reduce_range(const std::vector<ReferenceExchange::Step>& steps,
                                    std::size_t start, std::size_t count,
                                    const Reduction& reduction) {
  const std::size_t element = ops::size_of(reduction.dtype);
  std::vector<std::byte> result(count * element);
  std::vector<const std::byte*> sources;
  for (const ReferenceExchange::Step& step : steps) sources.push_back(step.data + start * element);
  const bool is_along_tree = reduction.tree != nullptr;  // which rounds as it adds
  if (is_along_tree || !ops::is_compressed(reduction.wire, reduction.dtype, reduction.op)) {
    std::byte* const to = result.data();
    ops::combine({&to, 1}, sources, count, reduction);
    return result;
  }
  std::vector<std::vector<std::byte>> messages;
  for (const std::byte*& source : sources) {
    auto& message = messages.emplace_back(ops::wire_size(count));
    static_cast<void>(
        ops::round_to_wire(message.data(), source, count, reduction.scale, reduction.wire));
    source = message.data();
  }
  const bool is_mean = reduction.scale != 1.0;
  ops::sum_from_wire(result.data(), sources, count, reduction.wire, is_mean);
  static_cast<void>(
      ops::round_to_wire(messages[0].data(), result.data(), count, 1.0, reduction.wire));
  ops::widen_from_wire(result.data(), messages[0].data(), count, reduction.wire);
  return result;
}

std::vector<std::span<const std::byte>> copy_of(ops::ConstParts parts) {
  return {parts.begin(), parts.end()};
}

void put(std::byte* to, const std::vector<std::byte>& from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

void ReferenceExchange::gather(std::unique_lock<std::mutex>& lock, const OpContext& context) {
  const std::uint64_t round = round_;
  if (++arrived_ == steps_.size()) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  while (round_ == round) {
    if (is_aborted_) throw PeerError("a peer gave up");
    context.failure->rethrow_if_failed();
    if (context.deadline.has_passed()) throw TimeoutError("a peer did not come to the board");
    changed_.wait_for(lock, std::chrono::milliseconds{1});
    if (context.progress) context.progress();
  }
}

void ReferenceExchange::meet(int rank, Step mine, const OpContext& context,
                             const std::function<void(const std::vector<Step>&)>& use) {
  std::unique_lock lock(mutex_);
  if (is_aborted_) throw PeerError("a peer gave up");
  const auto me = static_cast<std::size_t>(rank);
  steps_[me] = std::move(mine);
  gather(lock, context);
  for (const Step& step : steps_) check(steps_[me], step);
  const std::vector<Step> steps = steps_;
  lock.unlock();
  use(steps);
  lock.lock();
  gather(lock, context);
}

void ReferenceExchange::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

void ReferenceComm::all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                               const OpContext& context) {
  std::vector<std::byte> result;
  board_->meet(rank_, {data, {}, context.header}, context,
               [&](const auto& steps) { result = reduce_range(steps, 0, count, reduction); });
  put(data, result);
}

void ReferenceComm::reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
                           const OpContext& context) {
  std::vector<std::byte> result;
  board_->meet(rank_, {data, {}, context.header}, context,
               [&](const auto& steps) { result = reduce_range(steps, 0, count, reduction); });
  if (rank_ == root) put(data, result);
}

void ReferenceComm::reduce_scatter(ops::ConstParts input, std::byte* output,
                                   const Reduction& reduction, const OpContext& context) {
  const auto me = static_cast<std::size_t>(rank_);
  std::vector<std::byte> result;
  board_->meet(rank_, {nullptr, copy_of(input), context.header}, context, [&](const auto& steps) {
    std::vector<ReferenceExchange::Step> mine;
    for (const ReferenceExchange::Step& step : steps)
      mine.push_back({step.parts[me].data(), {}, step.header});
    result = reduce_range(mine, 0, input[me].size() / ops::size_of(reduction.dtype), reduction);
  });
  put(output, result);
}

void ReferenceComm::all_gather(ops::Parts parts, const OpContext& context) {
  const auto me = static_cast<std::size_t>(rank_);
  board_->meet(rank_, {parts[me].data(), {}, context.header}, context, [&](const auto& steps) {
    for (std::size_t r = 0; r < steps.size(); ++r) {
      if (r != me && !parts[r].empty()) {
        std::memcpy(parts[r].data(), steps[r].data, parts[r].size());
      }
    }
  });
}

void ReferenceComm::broadcast(std::byte* data, std::size_t bytes, int root,
                              const OpContext& context) {
  board_->meet(rank_, {data, {}, context.header}, context, [&](const auto& steps) {
    if (rank_ != root && bytes > 0) {
      std::memcpy(data, steps[static_cast<std::size_t>(root)].data, bytes);
    }
  });
}

void ReferenceComm::all_to_all(ops::ConstParts send, ops::Parts receive, const OpContext& context) {
  const auto me = static_cast<std::size_t>(rank_);
  board_->meet(rank_, {nullptr, copy_of(send), context.header}, context, [&](const auto& all) {
    for (std::size_t r = 0; r < all.size(); ++r) {
      const std::span<const std::byte> part = all[r].parts[me];
      if (!part.empty() && part.data() != receive[r].data()) {
        std::memcpy(receive[r].data(), part.data(), part.size());
      }
    }
  });
}

void ReferenceComm::barrier(const OpContext& context) {
  board_->meet(rank_, {nullptr, {}, context.header}, context, [](const auto&) {});
}

std::shared_ptr<ReferenceExchange> ReferenceWorld::board(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ReferenceExchange>& place = boards_[name];
  if (place == nullptr) place = std::make_shared<ReferenceExchange>(size);
  return place;
}

std::shared_ptr<ops::ThreadHub> ReferenceWorld::hub(const ops::CommRequest& request) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ops::ThreadHub>& place = hubs_[request.name];
  if (place == nullptr) {
    std::vector<ops::PeerName> names;
    for (std::size_t i = 0; i < request.ranks.size(); ++i) {
      names.push_back({request.global_ranks[i], request.hosts[i]});
    }
    place = std::make_shared<ops::ThreadHub>(static_cast<int>(names.size()), std::move(names));
  }
  return place;
}

ops::CommFactory ReferenceWorld::factory() {
  const auto make = [room = shared_from_this()](const ops::CommRequest& request,
                                                const ops::GroupOptions&, const OpContext&) {
    const int size = static_cast<int>(request.ranks.size());
    return std::make_unique<ReferenceComm>(room->board(request.name, size), request.rank, size);
  };
  const auto make_transport = [room = shared_from_this()](const ops::CommRequest& request,
                                                          const ops::GroupOptions&) {
    return std::make_unique<ops::ThreadTransport>(room->hub(request), request.rank);
  };
  ops::CommFactory factory;
  factory.on_node = factory.anywhere = make;
  factory.transport_anywhere = make_transport;
  return factory;
}

}  // namespace chainmail::test
