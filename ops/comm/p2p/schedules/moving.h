// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The schedules that only move bytes.

#pragma once

#include <memory>

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

/// From CollectiveArgs::root down a binomial tree: log2 n steps.
[[nodiscard]] std::unique_ptr<Schedule> make_broadcast_tree(Transport& transport);
/// From CollectiveArgs::root along a chain, piece after piece: the time of one copy for long
/// buffers.
[[nodiscard]] std::unique_ptr<Schedule> make_broadcast_chain(Transport& transport);
/// Everybody sends its part to everybody; one round.
[[nodiscard]] std::unique_ptr<Schedule> make_all_gather_direct(Transport& transport);
/// Parts travel around; n - 1 rounds, two peers per rank.
[[nodiscard]] std::unique_ptr<Schedule> make_all_gather_ring(Transport& transport);
[[nodiscard]] std::unique_ptr<Schedule> make_all_to_all(Transport& transport);
/// Dissemination: in round k everybody tells the rank 2^k further on; log2 n rounds.
[[nodiscard]] std::unique_ptr<Schedule> make_barrier(Transport& transport);

}  // namespace chainmail::ops
