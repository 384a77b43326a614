// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The integer wire (ops/kernels/block_wire.h): float32 elements to blocks of codes, with feedback,
// and sums of such blocks. Vector code for the best instruction set of the machine.
//
// Thread-safe (pure functions). Elements need no alignment. The same inputs give the same bits with
// every instruction set: products and sums are rounded one by one, never fused. `wire` is kInt8 or
// kInt4; others throw InvalidArgument, as do messages of another length than they should have.

#pragma once

#include <cstddef>
#include <span>

#include "ops/types.h"

namespace chainmail::ops {

/// Rounds y = source[i] * scale + residual[i] to whole numbers of its block's scale, to nearest
/// even, and leaves what that has lost in `residual`, to be added the next time (null: y =
/// source[i] * scale, and what is lost is lost). `message` becomes the block_format(wire).size() of
/// `count` elements.
///
/// With a residual and an `error`, y and what is lost of it are added there, but for blocks that
/// are not finite; in another order with other instruction sets.
///
/// True when a y is infinite or NaN. The residual of such a block stays as it was, and all of the
/// block arrives as NaN. A block whose y are all below 2^-100 sends nothing and is kept whole: its
/// residual does not shrink on until the inverse of a scale would be infinite.
[[nodiscard]] bool encode_blocks(std::span<std::byte> message, const std::byte* source,
                                 std::byte* residual, std::size_t count, double scale,
                                 WireFormat wire, RoundingError* error = nullptr);

/// destination[i] = messages[0][i] + messages[1][i] + ..., in float32 and that order. One message
/// or more, of `bytes` each, which may come from anybody: whatever they hold, nothing is read past
/// them. A block is NaN when one of its scales is not finite.
void sum_from_blocks(std::byte* destination, std::span<const std::byte* const> messages,
                     std::size_t bytes, std::size_t count, WireFormat wire);

/// destination[i] = message[i]
inline void decode_blocks(std::byte* destination, std::span<const std::byte> message,
                          std::size_t count, WireFormat wire) {
  const std::byte* const first = message.data();
  sum_from_blocks(destination, {&first, 1}, message.size(), count, wire);
}

/// destination[i] = destination[i] + message[i]
void accumulate_blocks(std::byte* destination, std::span<const std::byte> message,
                       std::size_t count, WireFormat wire);

}  // namespace chainmail::ops
