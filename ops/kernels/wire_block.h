// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What float32 elements look like on a 16-bit wire: halves, and for every kWireBlock of them a
// byte that says by which power of two they were multiplied before they were rounded.
//
// A block is multiplied so that its largest finite element gets the format's largest exponent.
// Nothing finite becomes infinite then, and what would have been below the format's normal numbers
// is rounded as exactly as the rest, as long as the block's largest is not 2^29 (bfloat16: 2^253)
// times as large. Elements that are normal numbers of the format without a factor are rounded to
// the same bits with it, since powers of two move no bits: all of them in a block whose largest can
// be rounded as it is.
//
// Pure functions; any address will do.

#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernels/element.h"
#include "ops/types.h"

namespace chainmail::ops {

/// Elements that share a factor, counted from the first of a message. 256 cost 0.2 % more bytes;
/// algorithms cut tensors at multiples of it, so that blocks are the same whatever the algorithm.
inline constexpr std::size_t kWireBlock = 256;

/// Bytes of a message of `count` elements: all halves, then a signed byte per block.
[[nodiscard]] constexpr std::size_t wire_size(std::size_t count) noexcept {
  return 2 * count + (count + kWireBlock - 1) / kWireBlock;
}

/// The most elements, whole blocks unless there is room for less than one, of at most `bytes`.
[[nodiscard]] constexpr std::size_t wire_capacity(std::size_t bytes) noexcept {
  const std::size_t blocks = bytes / wire_size(kWireBlock);
  return blocks > 0 ? blocks * kWireBlock : bytes < 3 ? 0 : (bytes - 1) / 2;
}

/// GPUs have a tensor as a row of messages of `part` elements each, whole blocks. They begin at
/// multiples of this, and their factors follow `part` halves, also where the last has fewer.
[[nodiscard]] constexpr std::size_t wire_stride(std::size_t part) noexcept {
  return (wire_size(part) + 15) / 16 * 16;
}

/// How the factor of a block is chosen.
struct WireScale {
  int largest_exponent;              ///< of the format: 15 or 127
  std::uint32_t round_up;            ///< added to a float32's bits, carries where rounding would
  static constexpr int kMost = 126;  ///< its inverse is still a normal float32

  /// The exponent of the factor for a block whose largest magnitude has these bits (finite).
  [[nodiscard]] CHAINMAIL_HOST_DEVICE constexpr int shift_for(
      std::uint32_t largest_bits) const noexcept {
    if (largest_bits == 0) return 0;
    const int exponent = static_cast<int>((largest_bits + round_up) >> 23) - 127;
    const int shift = largest_exponent - exponent;
    return shift < kMost ? shift : kMost;
  }

  /// Whether `terms` elements of such blocks might add up to more than float32 has, when each is
  /// widened with a shift of `shift` or more.
  [[nodiscard]] constexpr bool may_overflow(int shift, std::size_t terms) const noexcept {
    int bound = largest_exponent + 1 - shift;  // each is below 2^bound
    for (; terms > 1; terms = (terms + 1) / 2) ++bound;
    return bound > 127;
  }
};
inline constexpr WireScale kScaleFloat16{15, 0x1000};
inline constexpr WireScale kScaleBFloat16{127, 0x8000};

[[nodiscard]] constexpr const WireScale& wire_scale(WireFormat wire) noexcept {
  return wire == WireFormat::kFloat16 ? kScaleFloat16 : kScaleBFloat16;
}

/// The bits of the float32 2^exponent, -126 to 127.
[[nodiscard]] CHAINMAIL_HOST_DEVICE constexpr std::uint32_t power_of_two_bits(
    int exponent) noexcept {
  return static_cast<std::uint32_t>(exponent + 127) << 23;
}

}  // namespace chainmail::ops
