// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// hierarchical: reduce to the leader of each node, all-reduce among the leaders, broadcast inside.
// ChainerMN's "hierarchical" (NCCL reduce, MPI all-reduce, NCCL bcast) and Horovod's first
// two-level all-reduce, here pipelined by chunks.
//
// P ranks per node, N nodes, S bytes:
//   local  reduce and broadcast over shared memory: 2 synchronisations per chunk, the leader
//          reduces P*S
//   cross  among N leaders: 2(N-1) steps (1 for N=2), 2S(N-1)/N bytes sent per node, half of that
//          with a 16-bit wire; one connection per pair of leaders
// One core per node moves the data: the choice for small messages, where only steps count, and for
// nodes of one rank beside larger ones.

#pragma once

#include <cstddef>

#include "ops/algorithms/comms.h"

namespace chainmail::ops {

/// In place over `count` elements; needs comms.local on nodes of several ranks and comms.cross on
/// leaders. Throws what the Comms throw; they are dead then.
void all_reduce_hierarchical(const Comms& comms, std::byte* data, std::size_t count,
                             const Reduction& reduction, const OpContext& context,
                             std::size_t chunk_bytes);

}  // namespace chainmail::ops
