// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// hierarchical and two_dimensional on streams: chunk by chunk a local reduce-scatter to `owners`
// local ranks on the caller's stream, an all-reduce of every owner's slice between nodes on the
// group's cross stream, a local all-gather. Which call comes when depends on sizes and topology
// alone, so it is the same on all ranks.
//
// P ranks per node, N nodes, S bytes:
//   local  2S(P-1)/P per rank with P owners; 2S through the leader with one
//   cross  per node and direction 2S(N-1)/N; half with a 16-bit wire, where every owner sends slice
//          j to node j, adds in float32 in the order of the nodes, rounds, and all-gathers (a NCCL
//          all-reduce would round at every hop). 16 bits also go through the second local step.
// With StreamWork::host the cross step copies to pinned memory and back: ChainerMN's
// non_cuda_aware.

#pragma once

#include <cstddef>

#include "ops/algorithms/stream/stream_work.h"

namespace chainmail::ops {

/// Scratch that queue_pipelined_all_reduce needs.
[[nodiscard]] std::size_t pipelined_scratch_bytes(std::size_t count, const Reduction& reduction,
                                                  const Topology& topology, std::size_t chunk_bytes,
                                                  int owners) noexcept;

/// In place over `count` floating-point elements, summed and multiplied by reduction.scale, on at
/// least two nodes. Needs comms.local on nodes of several ranks, and comms.cross or work.host on
/// owners: the first `owners` local ranks of every node.
void queue_pipelined_all_reduce(const StreamComms& comms, StreamWork& work, std::byte* data,
                                std::size_t count, const Reduction& reduction,
                                std::size_t chunk_bytes, int owners);

}  // namespace chainmail::ops
