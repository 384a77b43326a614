// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// flat on streams, ChainerMN's "pure_nccl": one NCCL all-reduce over all ranks.
//
// With a 16-bit wire (ChainerMN's fp16 mode): every contribution is scaled in float32 and rounded
// once, NCCL adds in 16 bits, rounding as its ring or tree does. NCCL decides what crosses nodes.

#pragma once

#include <cstddef>

#include "ops/algorithms/stream/stream_work.h"

namespace chainmail::ops {

/// Scratch that queue_flat_all_reduce needs for `count` elements.
[[nodiscard]] std::size_t flat_scratch_bytes(std::size_t count,
                                             const Reduction& reduction) noexcept;

/// In place; needs comms.flat unless the group has one rank. kAvg is divided by the ranks here:
/// reduction.scale is used with a wire format only.
void queue_flat_all_reduce(const StreamComms& comms, StreamWork& work, std::byte* data,
                           std::size_t count, const Reduction& reduction);

}  // namespace chainmail::ops
