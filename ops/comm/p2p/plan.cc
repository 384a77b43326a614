// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/plan.h"

#include <algorithm>
#include <array>

#include "ops/comm/p2p/schedules/moving.h"
#include "ops/comm/p2p/schedules/reducing.h"

namespace chainmail::ops {
namespace {

std::size_t elements(std::size_t bytes, const CollectiveArgs& args) {
  const std::size_t most = args.is_compressed() ? message_capacity(bytes, args.reduction.wire)
                                                : bytes / args.element_bytes();
  return std::max<std::size_t>(most, 1);
}

void cut_into_pieces(CollectiveArgs& args, std::size_t bytes) {
  args.piece = elements(bytes, args);
  args.native_piece = std::max<std::size_t>(bytes / args.element_bytes(), 1);
}

std::size_t bytes_of(const CollectiveArgs& args) {
  const std::size_t rounded = args.compressed_count();
  return message_size(rounded, args.reduction.wire) + (args.count - rounded) * args.element_bytes();
}

}  // namespace

ScheduleKind plan_all_reduce(CollectiveArgs& args, int size, const P2pOptions& options) {
  if (args.count == 0) return ScheduleKind::kBarrier;
  const bool is_small = bytes_of(args) <= options.small_bytes;
  const bool loses_bits = args.compressed_count() != 0 || args.reduction.tree != nullptr ||
                          args.reduction.dtype == DataType::kFloat16 ||
                          args.reduction.dtype == DataType::kBFloat16;
  const bool is_crowded = size > options.max_direct_ranks;
  cut_into_pieces(args, options.piece_bytes);
  if (size == 2 || (is_small && !is_crowded)) return ScheduleKind::kExchange;
  if (is_crowded && !loses_bits && is_small) return ScheduleKind::kDoubling;
  cut_into_pieces(args, options.slice_bytes * static_cast<std::size_t>(size));
  return is_crowded && !loses_bits ? ScheduleKind::kRing : ScheduleKind::kDirect;
}

ScheduleKind plan_reduce_scatter(CollectiveArgs& args, int /*size*/, const P2pOptions& options) {
  if (args.count == 0) return ScheduleKind::kBarrier;
  args.piece = elements(options.piece_bytes, args);
  return ScheduleKind::kReduceScatter;
}

ScheduleKind plan_broadcast(CollectiveArgs& args, int size, const P2pOptions& options) {
  if (args.count == 0) return ScheduleKind::kBarrier;
  args.piece = std::max<std::size_t>(options.piece_bytes, 1);
  const bool is_long = args.count > 2 * options.piece_bytes;
  return size > 2 && is_long ? ScheduleKind::kBroadcastChain : ScheduleKind::kBroadcastTree;
}

ScheduleKind plan_all_gather(const CollectiveArgs& args, int size, const P2pOptions& options) {
  if (args.count == 0) return ScheduleKind::kBarrier;
  return size > options.max_direct_ranks ? ScheduleKind::kAllGatherRing
                                         : ScheduleKind::kAllGatherDirect;
}

std::unique_ptr<Schedule> make_schedule(ScheduleKind kind, Transport& transport) {
  // By the values of the enumeration.
  const std::array<ScheduleMaker, kScheduleKindCount> makers = {make_exchange,
                                                                make_direct,
                                                                make_ring,
                                                                make_doubling,
                                                                make_reduce_scatter,
                                                                make_broadcast_tree,
                                                                make_broadcast_chain,
                                                                make_all_gather_direct,
                                                                make_all_gather_ring,
                                                                make_all_to_all,
                                                                make_barrier};
  return makers.at(static_cast<std::size_t>(kind))(transport);
}

}  // namespace chainmail::ops
