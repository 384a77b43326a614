// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The calls that only move bytes: all_gather, broadcast, all_to_all, barrier.
//
// In every step each rank fills its own staging area and then reads those of its peers; areas
// alternate as in reduce.cc.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/comm/shm/shm_comm_impl.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops::shm {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) ops::copy_memory(to, from, bytes);  // an empty buffer may be null
}

// Where step `s` of `steps` begins in `bytes`, cut at cache lines.
std::size_t cut(std::size_t bytes, std::size_t s, std::size_t steps) {
  constexpr std::size_t kLine = 64;
  const std::size_t length = (bytes + steps * kLine - 1) / (steps * kLine) * kLine;
  return std::min(s * length, bytes);
}

std::size_t steps_for(std::size_t bytes, std::size_t room) {
  return std::max<std::size_t>((bytes + room - 1) / room, 1);
}

// table[from * ranks + to]: bytes that `from` sends to `to`.
class Traffic {
 public:
  explicit Traffic(std::size_t ranks) : ranks_(ranks), table_(ranks * ranks) {}
  void set_row(std::size_t from, const std::byte* row) {
    std::memcpy(table_.data() + from * ranks_, row, ranks_ * sizeof(std::uint64_t));
  }
  std::size_t bytes(std::size_t from, std::size_t to) const { return table_[from * ranks_ + to]; }

  /// Equal on all ranks: enough that every rank's outgoing bytes of a step fit `room`.
  std::size_t steps(std::size_t room) const {
    std::size_t most = 0;
    for (std::size_t from = 0; from < ranks_; ++from) {
      std::size_t sum = 0;
      for (std::size_t to = 0; to < ranks_; ++to) sum += from == to ? 0 : bytes(from, to);
      most = std::max(most, sum);
    }
    return steps_for(most, room);
  }
  /// Where the piece for `to` lies in `from`'s staging area in step `s`.
  std::size_t offset(std::size_t from, std::size_t to, std::size_t s, std::size_t steps) const {
    std::size_t sum = 0;
    for (std::size_t before = 0; before < to; ++before) {
      if (before != from) sum += piece(from, before, s, steps);
    }
    return sum;
  }
  std::size_t piece(std::size_t from, std::size_t to, std::size_t s, std::size_t steps) const {
    const std::size_t all = bytes(from, to);
    return cut(all, s + 1, steps) - cut(all, s, steps);
  }

 private:
  std::size_t ranks_;
  std::vector<std::uint64_t> table_;
};

}  // namespace

void ShmComm::barrier(const OpContext& context) {
  sync_.enter(Method::kBarrier, 0, nullptr, 0, context);
  sync_.wait_for_entries(context);
}

void ShmComm::all_gather(Parts parts, const OpContext& context) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  gather_in_steps(Method::kAllGather, parts, bytes, context);
}

void ShmComm::broadcast(std::byte* data, std::size_t bytes, int root, const OpContext& context) {
  if (root < 0 || root >= size()) {
    throw InvalidArgument("broadcast from rank " + std::to_string(root) + " of " +
                          std::to_string(size()));
  }
  // A gathering to which only the root contributes.
  std::vector<std::span<std::byte>> parts(static_cast<std::size_t>(size()));
  parts[static_cast<std::size_t>(root)] = {data, bytes};
  const std::uint64_t digest =
      bytes * static_cast<std::size_t>(size()) + static_cast<std::size_t>(root);
  gather_in_steps(Method::kBroadcast, parts, digest, context);
}

void ShmComm::gather_in_steps(Method method, Parts parts, std::uint64_t digest,
                              const OpContext& context) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto self = static_cast<std::size_t>(rank());
  std::size_t longest = 0;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  if (longest <= kInlineBytes) {
    sync_.enter(method, digest, parts[self].data(), parts[self].size(), context);
    sync_.wait_for_entries(context);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == self) continue;
      copy_bytes(parts[r].data(), sync_.payload(static_cast<int>(r)), parts[r].size());
    }
    return;
  }
  const std::size_t room = sync_.segment().layout().chunk_bytes;
  const std::size_t steps = steps_for(longest, room);
  for (std::size_t s = 0; s < steps; ++s) {
    const std::uint64_t step = sync_.next_step();
    const auto piece = [&](std::size_t r) {
      const std::size_t begin = cut(parts[r].size(), s, steps);
      return parts[r].subspan(begin, cut(parts[r].size(), s + 1, steps) - begin);
    };
    copy_bytes(sync_.segment().staging(rank(), step), piece(self).data(), piece(self).size());
    meet(method, digest, step, s == 0, context);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == self) continue;
      copy_bytes(piece(r).data(), sync_.segment().staging(static_cast<int>(r), step),
                 piece(r).size());
    }
  }
}

void ShmComm::all_to_all(ConstParts send, Parts receive, const OpContext& context) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto self = static_cast<std::size_t>(rank());
  const Segment& segment = sync_.segment();
  copy_bytes(receive[self].data(), send[self].data(),
             std::min(receive[self].size(), send[self].size()));

  // First everybody says how much goes where: sizes differ from pair to pair.
  std::uint64_t step = sync_.next_step();
  std::vector<std::uint64_t> row(ranks);
  for (std::size_t r = 0; r < ranks; ++r) row[r] = send[r].size();
  std::memcpy(segment.staging(rank(), step), row.data(), ranks * sizeof(std::uint64_t));
  sync_.enter(Method::kAllToAll, 0, nullptr, 0, context);
  sync_.wait_for_entries(context);
  Traffic traffic(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    traffic.set_row(r, segment.staging(static_cast<int>(r), step));
    const std::size_t expected = receive[r].size();
    if (traffic.bytes(r, self) == expected) continue;
    const int peer = static_cast<int>(r);
    sync_.fail(std::make_exception_ptr(MismatchError(
                   "ranks disagree in " + context.header.describe() + ": " + sync_.name(peer) +
                   " sends " + std::to_string(traffic.bytes(r, self)) + " bytes to " +
                   sync_.name(rank()) + ", which expects " + std::to_string(expected))),
               context);
  }

  const std::size_t steps = traffic.steps(segment.layout().chunk_bytes - 64 * ranks);
  for (std::size_t s = 0; s < steps; ++s) {
    step = sync_.next_step();
    for (std::size_t to = 0; to < ranks; ++to) {
      if (to == self) continue;
      copy_bytes(segment.staging(rank(), step) + traffic.offset(self, to, s, steps),
                 send[to].data() + cut(row[to], s, steps), traffic.piece(self, to, s, steps));
    }
    sync_.publish(&RankArea::staged, step);
    sync_.wait_for_counter(&RankArea::staged, step, context);
    for (std::size_t from = 0; from < ranks; ++from) {
      if (from == self) continue;
      copy_bytes(
          receive[from].data() + cut(traffic.bytes(from, self), s, steps),
          segment.staging(static_cast<int>(from), step) + traffic.offset(from, self, s, steps),
          traffic.piece(from, self, s, steps));
    }
  }
}

}  // namespace chainmail::ops::shm
