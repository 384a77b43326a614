// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/plan.h"

#include <algorithm>

#include "ops/comm/p2p/schedules/moving.h"
#include "ops/comm/p2p/schedules/reducing.h"

namespace chainmail::ops {
namespace {

std::size_t elements(std::size_t bytes, const Job& job) {
  const std::size_t most = job.is_compressed() ? wire_capacity(bytes) : bytes / job.element_bytes();
  return std::max<std::size_t>(most, 1);
}

}  // namespace

ScheduleKind plan_all_reduce(Job& job, int size, const P2pOptions& options) {
  if (job.count == 0) return ScheduleKind::kBarrier;
  const std::size_t bytes = job.message_bytes(job.count);
  const bool is_small = bytes <= options.small_bytes;
  const bool loses_bits = job.is_compressed() || job.reduction.dtype == DataType::kFloat16 ||
                          job.reduction.dtype == DataType::kBFloat16;
  const bool is_crowded = size > options.max_direct_ranks;
  job.piece = elements(options.piece_bytes, job);
  if (size == 2 || (is_small && !is_crowded)) return ScheduleKind::kExchange;
  if (is_crowded && !loses_bits && is_small) return ScheduleKind::kDoubling;
  job.piece = elements(options.slice_bytes * static_cast<std::size_t>(size), job);
  return is_crowded && !loses_bits ? ScheduleKind::kRing : ScheduleKind::kDirect;
}

ScheduleKind plan_reduce_scatter(Job& job, int /*size*/, const P2pOptions& options) {
  if (job.count == 0) return ScheduleKind::kBarrier;
  job.piece = elements(options.piece_bytes, job);
  return ScheduleKind::kReduceScatter;
}

ScheduleKind plan_broadcast(Job& job, int size, const P2pOptions& options) {
  if (job.count == 0) return ScheduleKind::kBarrier;
  job.piece = std::max<std::size_t>(options.piece_bytes, 1);
  const bool is_long = job.count > 2 * options.piece_bytes;
  return size > 2 && is_long ? ScheduleKind::kBroadcastChain : ScheduleKind::kBroadcastTree;
}

ScheduleKind plan_all_gather(const Job& job, int size, const P2pOptions& options) {
  if (job.count == 0) return ScheduleKind::kBarrier;
  return size > options.max_direct_ranks ? ScheduleKind::kAllGatherRing
                                         : ScheduleKind::kAllGatherDirect;
}

std::unique_ptr<Schedule> make_schedule(ScheduleKind kind, Transport& transport) {
  switch (kind) {
    case ScheduleKind::kExchange:
      return make_exchange(transport);
    case ScheduleKind::kDirect:
      return make_direct(transport);
    case ScheduleKind::kRing:
      return make_ring(transport);
    case ScheduleKind::kDoubling:
      return make_doubling(transport);
    case ScheduleKind::kReduceScatter:
      return make_reduce_scatter(transport);
    case ScheduleKind::kBroadcastTree:
      return make_broadcast_tree(transport);
    case ScheduleKind::kBroadcastChain:
      return make_broadcast_chain(transport);
    case ScheduleKind::kAllGatherDirect:
      return make_all_gather_direct(transport);
    case ScheduleKind::kAllGatherRing:
      return make_all_gather_ring(transport);
    case ScheduleKind::kAllToAll:
      return make_all_to_all(transport);
    case ScheduleKind::kBarrier:
      return make_barrier(transport);
  }
  return nullptr;
}

}  // namespace chainmail::ops
