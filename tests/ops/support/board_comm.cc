// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/board_comm.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::test {
namespace {

using ops::OpContext;
using ops::Reduction;

void check(const Board::Step& mine, const Board::Step& other) {
  if (!mine.header.matches(other.header)) {
    throw MismatchError(mine.header.describe() + " against " + other.header.describe());
  }
}

/// Elements [start, start + count) of everybody's data, reduced as the wire asks for.
std::vector<std::byte> reduce_range(const std::vector<Board::Step>& steps, std::size_t start,
                                    std::size_t count, const Reduction& reduction) {
  const std::size_t element = ops::size_of(reduction.dtype);
  std::vector<std::byte> result(count * element);
  std::vector<const std::byte*> sources;
  for (const Board::Step& step : steps) {
    sources.push_back(step.data + start * element);
  }
  if (!ops::is_compressed(reduction.wire, reduction.dtype, reduction.op)) {
    ops::reduce(result.data(), sources, count, reduction.dtype, reduction.op, reduction.scale);
    return result;
  }
  std::vector<std::byte> halves(count * 2);
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    static_cast<void>(ops::round_to_wire(halves.data(), sources[rank], count, reduction.dtype,
                                         reduction.scale, reduction.wire));
    if (rank == 0) {
      ops::widen_from_wire(result.data(), halves.data(), count, reduction.dtype, reduction.wire);
    } else {
      ops::accumulate_from_wire(result.data(), halves.data(), count, reduction.dtype,
                                reduction.wire);
    }
  }
  static_cast<void>(ops::round_to_wire(halves.data(), result.data(), count, reduction.dtype, 1.0,
                                       reduction.wire));
  ops::widen_from_wire(result.data(), halves.data(), count, reduction.dtype, reduction.wire);
  return result;
}

std::vector<std::size_t> copy_of(std::span<const std::size_t> bounds) {
  return {bounds.begin(), bounds.end()};
}

void put(std::byte* to, const std::vector<std::byte>& from) {
  if (!from.empty()) {
    std::memcpy(to, from.data(), from.size());
  }
}

/// Done when it is made: the ranks have met already.
class DoneRequest final : public ops::Request {
 public:
  bool test() override { return true; }
  void wait() override {}
};

}  // namespace

void Board::gather(std::unique_lock<std::mutex>& lock, const OpContext& context) {
  const std::uint64_t round = round_;
  if (++arrived_ == steps_.size()) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  while (round_ == round) {
    if (is_aborted_) {
      throw PeerError("a peer gave up");
    }
    context.failure->rethrow_if_failed();
    if (context.deadline.has_passed()) {
      throw TimeoutError("a peer did not come to the board");
    }
    changed_.wait_for(lock, std::chrono::milliseconds{1});
    if (context.progress) {
      context.progress();
    }
  }
}

void Board::meet(int rank, Step mine, const OpContext& context,
                 const std::function<void(const std::vector<Step>&)>& use) {
  std::unique_lock lock(mutex_);
  if (is_aborted_) {
    throw PeerError("a peer gave up");
  }
  const auto me = static_cast<std::size_t>(rank);
  steps_[me] = std::move(mine);
  gather(lock, context);
  for (const Step& step : steps_) {
    check(steps_[me], step);
  }
  const std::vector<Step> steps = steps_;
  lock.unlock();
  use(steps);
  lock.lock();
  gather(lock, context);
}

void Board::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

void BoardComm::all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                           const OpContext& context) {
  std::vector<std::byte> result;
  board_->meet(rank_, {data, {}, context.header}, context,
               [&](const auto& steps) { result = reduce_range(steps, 0, count, reduction); });
  put(data, result);
}

void BoardComm::reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
                       const OpContext& context) {
  std::vector<std::byte> result;
  board_->meet(rank_, {data, {}, context.header}, context,
               [&](const auto& steps) { result = reduce_range(steps, 0, count, reduction); });
  if (rank_ == root) put(data, result);
}

void BoardComm::reduce_scatter(std::byte* data, std::span<const std::size_t> bounds,
                               const Reduction& reduction, const OpContext& context) {
  const auto me = static_cast<std::size_t>(rank_);
  std::vector<std::byte> result;
  board_->meet(rank_, {data, {}, context.header}, context, [&](const auto& steps) {
    result = reduce_range(steps, bounds[me], bounds[me + 1] - bounds[me], reduction);
  });
  // What is undefined to callers should not look right by accident.
  const std::size_t element = ops::size_of(reduction.dtype);
  if (bounds.back() > 0) {
    std::memset(data, 0x5a, bounds.back() * element);
  }
  put(data + bounds[me] * element, result);
}

void BoardComm::all_gather(std::byte* data, std::span<const std::size_t> byte_bounds,
                           const OpContext& context) {
  std::vector<std::byte> result(byte_bounds.back());
  board_->meet(rank_, {data, {}, context.header}, context, [&](const auto& steps) {
    for (std::size_t r = 0; r < steps.size(); ++r) {
      for (std::size_t i = byte_bounds[r]; i < byte_bounds[r + 1]; ++i) {
        result[i] = steps[r].data[i];
      }
    }
  });
  put(data, result);
}

void BoardComm::broadcast(std::byte* data, std::size_t bytes, int root, const OpContext& context) {
  board_->meet(rank_, {data, {}, context.header}, context, [&](const auto& steps) {
    if (rank_ != root && bytes > 0) {
      std::memcpy(data, steps[static_cast<std::size_t>(root)].data, bytes);
    }
  });
}

void BoardComm::all_to_all(const std::byte* send, std::span<const std::size_t> send_bounds,
                           std::byte* receive, std::span<const std::size_t> receive_bounds,
                           const OpContext& context) {
  const auto me = static_cast<std::size_t>(rank_);
  board_->meet(rank_, {send, copy_of(send_bounds), context.header}, context, [&](const auto& all) {
    for (std::size_t r = 0; r < all.size(); ++r) {
      const std::size_t bytes = all[r].bounds[me + 1] - all[r].bounds[me];
      if (bytes > 0) {
        std::memcpy(receive + receive_bounds[r], all[r].data + all[r].bounds[me], bytes);
      }
    }
  });
}

void BoardComm::send(const std::byte* data, std::size_t bytes, int /*peer*/, std::uint32_t /*tag*/,
                     const OpContext& context) {
  static_cast<void>(bytes);
  board_->meet(rank_, {data, {}, context.header}, context, [](const auto&) {});
}

void BoardComm::receive(std::byte* data, std::size_t bytes, int peer, std::uint32_t /*tag*/,
                        const OpContext& context) {
  board_->meet(rank_, {data, {}, context.header}, context, [&](const auto& steps) {
    if (bytes > 0) {
      std::memcpy(data, steps[static_cast<std::size_t>(peer)].data, bytes);
    }
  });
}

void BoardComm::barrier(const OpContext& context) {
  board_->meet(rank_, {nullptr, {}, context.header}, context, [](const auto&) {});
}

std::unique_ptr<ops::Request> BoardComm::start_all_reduce(std::byte* data, std::size_t count,
                                                          const Reduction& reduction,
                                                          const OpContext& context) {
  all_reduce(data, count, reduction, context);
  return std::make_unique<DoneRequest>();
}

std::shared_ptr<Board> BoardRoom::board(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Board>& place = boards_[name];
  if (place == nullptr) {
    place = std::make_shared<Board>(size);
  }
  return place;
}

std::shared_ptr<ops::ThreadHub> BoardRoom::hub(const ops::CommRequest& request) {
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

ops::CommFactory BoardRoom::factory() {
  const auto make = [room = shared_from_this()](const ops::CommRequest& request,
                                                const ops::GroupOptions&, const OpContext&) {
    const int size = static_cast<int>(request.ranks.size());
    return std::make_unique<BoardComm>(room->board(request.name, size), request.rank, size);
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
