// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The pipeline that hierarchical and two_dimensional share: chunk by chunk a local reduce-scatter
// to `owners` local ranks, an all-reduce of every owner's slice between nodes, a local all-gather.
//
// Several chunks are between the nodes while later ones are being reduced inside, so that the time
// tends to max(local, wire) instead of their sum (Horovod PR 1047). All ranks of a node do the
// local steps in the same order. Not for one node: see all_reduce_on_node.

#pragma once

#include <cstddef>

#include "ops/algorithms/comms.h"

namespace chainmail::ops {

/// Chunks between the nodes at one time.
inline constexpr std::size_t kPipelineDepth = 3;

/// Elements of one chunk: at most `chunk_bytes`, smaller when that gives a middle-sized message
/// something to overlap.
[[nodiscard]] std::size_t pipeline_chunk(std::size_t count, DataType dtype,
                                         std::size_t chunk_bytes) noexcept;

/// In place over `count` elements, on at least two nodes. The first `owners` local ranks of every
/// node own a slice. Throws what the Comms throw; they are dead then.
void all_reduce_pipelined(const Comms& comms, std::byte* data, std::size_t count,
                          const Reduction& reduction, const OpContext& context,
                          std::size_t chunk_bytes, int owners);

/// In place over the ranks of the only node, scaled there; nothing is rounded to a wire format.
void all_reduce_on_node(const Comms& comms, std::byte* data, std::size_t count,
                        const Reduction& reduction, const OpContext& context);

}  // namespace chainmail::ops
