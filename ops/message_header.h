// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The 32 bytes that say what a message is. Every step of every operation carries one, or is
// preceded by one, so that ranks which disagree find out before a byte of the payload is used.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ops/types.h"

namespace chainmail::ops {

/// Bits of MessageHeader::flags.
inline constexpr std::uint16_t kFlagNonFinite = 1;  ///< rounding to the wire format met inf or NaN

struct MessageHeader {
  static constexpr std::uint16_t kMagic = 0x4d43;  // "CM"
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::size_t kBytes = 32;

  OpKind kind = OpKind::kBarrier;
  std::uint32_t generation = 0;
  std::uint64_t sequence = 0;  ///< counts the operations of a group
  std::uint64_t count = 0;     ///< elements of the whole operation; bytes of a kSend
  std::uint32_t layout = 0;    ///< hash of shape_hash, root, split sizes, algorithm
  DataType dtype = DataType::kUInt8;
  ReduceOp reduce_op = ReduceOp::kSum;
  std::uint16_t flags = 0;  ///< not part of the comparison

  /// Little-endian, fixed layout.
  [[nodiscard]] std::array<std::byte, kBytes> encode() const noexcept;
  /// Nothing when the magic, the version or an enumerator is unknown, or bytes are missing.
  [[nodiscard]] static std::optional<MessageHeader> decode(
      std::span<const std::byte> bytes) noexcept;

  /// True when both describe the same operation (all but the flags).
  [[nodiscard]] bool matches(const MessageHeader& other) const noexcept;
  /// "all_reduce #12 of 1000 float32 (sum, layout 5f3a...)"
  [[nodiscard]] std::string describe() const;
};

}  // namespace chainmail::ops
