// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which schedule carries a call: the one place where that is decided. Depends only on what all
// ranks know, so that they agree without a message.

#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

/// Tuned for tests; equal on all ranks of a Comm.
struct P2pOptions {
  /// Two ranks exchange pieces of this size: sent without asking, and still in the cache when they
  /// are added (a quarter faster than 1 MiB over loopback). Of a rank's part in a reduce_scatter,
  /// and of a broadcast, too.
  std::size_t piece_bytes = kEagerBytes;
  /// Direct and ring: a rank's slice of a piece, sent without asking up to kEagerBytes. Half of
  /// that keeps three or four links busy from the first to the last slice (4 % at 4 MiB, 1 Gbit/s).
  std::size_t slice_bytes = kEagerBytes / 2;
  /// Pieces of one call that are under way at once.
  int window = 4;
  /// Up to this many ranks everybody may talk to everybody; more keep to few peers.
  int max_direct_ranks = 8;
  /// Calls up to this size take the fewest rounds instead of the fewest bytes.
  std::size_t small_bytes = std::size_t{4} << 10;
  /// How long a wait looks for messages before it sleeps: waking up costs tens of microseconds.
  std::chrono::microseconds spin{50};
  /// Of the group that the Comm belongs to, which must outlive it; null: the Comm has its own.
  ProgressTracker* tracker = nullptr;
};

enum class ScheduleKind {
  kExchange,
  kDirect,
  kRing,
  kDoubling,
  kReduceScatter,
  kBroadcastTree,
  kBroadcastChain,
  kAllGatherDirect,
  kAllGatherRing,
  kAllToAll,
  kBarrier,
};
inline constexpr std::size_t kScheduleKindCount = 11;

/// What carries an all_reduce; sets CollectiveArgs::piece. Nothing to move is a barrier, here and
/// below: its messages carry the header, so that ranks which disagree find out.
///
/// | ranks             | bytes <= small_bytes | more               |
/// |-------------------|----------------------|--------------------|
/// | 2                 | exchange             | exchange           |
/// | 3 .. max_direct   | exchange             | direct             |
/// | more              | doubling             | ring               |
///
/// Compressed calls of more than two ranks go direct whatever their number: two roundings, never
/// one per hop; the same for types of 16 bits, which would lose bits at each hop, and for sums
/// along a tree, which no ring can make.
[[nodiscard]] ScheduleKind plan_all_reduce(CollectiveArgs& args, int size,
                                           const P2pOptions& options);
[[nodiscard]] ScheduleKind plan_reduce_scatter(CollectiveArgs& args, int size,
                                               const P2pOptions& options);
/// A tree for small buffers, a chain of pieces where bandwidth counts.
[[nodiscard]] ScheduleKind plan_broadcast(CollectiveArgs& args, int size,
                                          const P2pOptions& options);
[[nodiscard]] ScheduleKind plan_all_gather(const CollectiveArgs& args, int size,
                                           const P2pOptions& options);

[[nodiscard]] std::unique_ptr<Schedule> make_schedule(ScheduleKind kind, Transport& transport);

}  // namespace chainmail::ops
