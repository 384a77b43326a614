// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The schedules that only move bytes.

#pragma once

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

/// From CollectiveArgs::root down a binomial tree: log2 n steps.
extern const ScheduleMaker make_broadcast_tree;
/// From CollectiveArgs::root along a chain, piece after piece: the time of one copy for long
/// buffers.
extern const ScheduleMaker make_broadcast_chain;
/// Everybody sends its part to everybody; one round.
extern const ScheduleMaker make_all_gather_direct;
/// Parts travel around; n - 1 rounds, two peers per rank.
extern const ScheduleMaker make_all_gather_ring;
extern const ScheduleMaker make_all_to_all;
/// Dissemination: in round k everybody tells the rank 2^k further on; log2 n rounds.
extern const ScheduleMaker make_barrier;

}  // namespace chainmail::ops
