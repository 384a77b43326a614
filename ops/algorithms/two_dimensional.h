// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// two_dimensional: reduce-scatter inside the node, every local rank all-reduces its slice with the
// ranks of equal local rank on the other nodes, all-gather inside. ChainerMN's "two_dimensional";
// Mikami et al. 2018 (2D-torus); Horovod PR 3608. Here pipelined by chunks.
//
// P ranks per node, N nodes, S bytes:
//   local  2(P-1)/P * S bytes per rank through shared memory, 2 synchronisations per chunk
//   cross  P all-reduces of S/P at the same time: 2(N-1) steps (1 for N=2), 2(S/P)(N-1)/N bytes
//          sent per rank, 2S(N-1)/N per node (flat: 2S(PN-1)/(PN)), half with a 16-bit wire
// All cores of a node work: the choice for large messages. Uneven nodes: slices are those of the
// smallest node's P; local ranks beyond it own no slice.

#pragma once

#include <cstddef>

#include "ops/algorithms/comms.h"

namespace chainmail::ops {

/// In place over `count` elements; needs comms.local on nodes of several ranks and comms.cross on
/// local ranks below topology.min_local_size(). Throws what the Comms throw; they are dead then.
void all_reduce_two_dimensional(const Comms& comms, std::byte* data, std::size_t count,
                                const Reduction& reduction, const OpContext& context,
                                std::size_t chunk_bytes);

}  // namespace chainmail::ops
