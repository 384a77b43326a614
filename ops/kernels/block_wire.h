// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What float32 elements look like on an integer wire: blocks that share a scale, of whole numbers
// between -most and most.
//
// A message of c elements is ceil(c / block) scales in bfloat16, then the codes: int8 a byte each,
// int4 two in a byte, the first in the lower half, both in two's complement. An element is its
// code * scale. Blocks count from the first element of a message; the last may be short, and
// nothing is padded but the upper half of int4's last byte, which is 0.
//
// A scale is the block's largest magnitude / most, rounded up, so that no code is out of range. Two
// scales are special: NaN marks a block in which something was infinite or NaN, all of which
// becomes NaN; 0 a block whose elements are all below 2^-100, which become 0.
//
// Pure functions; any address will do.

#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernels/wire_block.h"
#include "ops/types.h"

namespace chainmail::ops {

/// The numbers of an integer wire.
struct BlockFormat {
  std::size_t block;  ///< elements that share a scale
  std::size_t bits;   ///< of a code
  int most;           ///< the largest code

  [[nodiscard]] constexpr std::size_t scales(std::size_t count) const noexcept {
    return (count + block - 1) / block;
  }
  [[nodiscard]] constexpr std::size_t code_bytes(std::size_t count) const noexcept {
    return (count * bits + 7) / 8;
  }
  /// Bytes of a message of `count` elements.
  [[nodiscard]] constexpr std::size_t size(std::size_t count) const noexcept {
    return scales(count) * sizeof(std::uint16_t) + code_bytes(count);
  }
};
inline constexpr BlockFormat kBlocksInt8{256, 8, 127};
inline constexpr BlockFormat kBlocksInt4{64, 4, 7};

/// Of an integer wire.
[[nodiscard]] constexpr const BlockFormat& block_format(WireFormat wire) noexcept {
  return wire == WireFormat::kInt4 ? kBlocksInt4 : kBlocksInt8;
}

/// Bytes of a message of `count` float32 elements in any format.
[[nodiscard]] constexpr std::size_t message_size(std::size_t count, WireFormat wire) noexcept {
  if (is_in_blocks(wire)) return block_format(wire).size(count);
  return wire == WireFormat::kNative ? count * sizeof(float) : wire_size(count);
}

/// The most elements, whole blocks of kWireBlock unless there is room for less than one, of at most
/// `bytes` in any format.
[[nodiscard]] constexpr std::size_t message_capacity(std::size_t bytes, WireFormat wire) noexcept {
  if (wire == WireFormat::kNative) return bytes / sizeof(float);
  if (!is_in_blocks(wire)) return wire_capacity(bytes);
  const BlockFormat& format = block_format(wire);
  const std::size_t blocks = bytes / format.size(kWireBlock);
  if (blocks > 0) return blocks * kWireBlock;
  std::size_t most = 0;
  while (format.size(most + 1) <= bytes) ++most;
  return most;
}

}  // namespace chainmail::ops
