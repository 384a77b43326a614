// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The schedules that combine elements. All of them give the same bits on every rank and in every
// run: sums go in the order of ranks or along a fixed path, and whoever finishes an element sends
// the result (exchange: all ranks compute the same expression).
//
// Compressed wire: each contribution is scaled and rounded once when it is packed, sums are float32
// (float64), the result is rounded once more where it is sent back; the owner uses those rounded
// bytes, too. Ring and doubling would round at each hop, so they carry native elements only.

#pragma once

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

/// Everybody sends everything to everybody; one round. For two ranks, and a few with little data.
extern const ScheduleMaker make_exchange;
/// Each rank owns a slice of each piece: contributions to the owner, result from it; two rounds.
extern const ScheduleMaker make_direct;
/// Slices travel around, growing, then the results do; 2 (n - 1) rounds, two peers per rank.
extern const ScheduleMaker make_ring;
/// Pairs at distance 1, 2, 4 ... combine all they have; log2 n rounds, two more for other n.
extern const ScheduleMaker make_doubling;
/// CollectiveArgs::inputs: contributions to the owner; one round.
extern const ScheduleMaker make_reduce_scatter;

/// What is left to do to finished elements of a native wire: the factor was applied by reduce(),
/// an average of integers is divided here.
void finish_average(std::byte* data, std::size_t count, const Reduction& reduction, int size);

}  // namespace chainmail::ops
