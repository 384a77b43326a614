// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What travels between two ranks, over TCP or shared memory: a fixed head, then at most
// kMaxFramePayload bytes.
//
// Pure functions over bytes; any thread. A message is cut into frames so that its checksum is
// computed while the piece is in the cache, and so that an abort never waits behind a long message.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/core/error_text.h"
#include "ops/message_header.h"

namespace chainmail::ops {

inline constexpr std::size_t kMaxFramePayload = std::size_t{256} << 10;

enum class FrameType : std::uint8_t {
  kData = 1,  ///< a piece of a message
  kReady,     ///< the sender of this frame has posted the receive with this tag
  kInquiry,   ///< "I wait in this call": to be compared, nothing else
  kAbort,     ///< the sender gives up; the payload is an encode_error()
  kGoodbye,   ///< the sender has finished; nothing follows
  kOffer,     ///< a point-to-point message waits for its receive
  kHold,      ///< too many messages have come unasked: offer later ones first
  kProgress,  ///< answers kInquiry: `message_bytes` ms ago something moved, told over `offset`
              ///< hops; of a message between two ranks: it comes after others (offset 1), or not
              ///< (0)
};

struct FrameHead {
  static constexpr std::size_t kBytes = 80;

  MessageHeader header;
  FrameType type = FrameType::kData;
  bool has_checksum = false;
  std::uint32_t length = 0;  ///< of the payload that follows
  std::uint64_t tag = 0;
  std::uint64_t message_bytes = 0;  ///< of the whole message
  std::uint64_t offset = 0;         ///< of this payload in it
  std::uint64_t checksum = 0;       ///< hash64() of the payload

  [[nodiscard]] std::array<std::byte, kBytes> encode() const noexcept;
  /// Nothing when the head's own checksum is wrong or a field cannot be right.
  [[nodiscard]] static std::optional<FrameHead> decode(std::span<const std::byte> bytes) noexcept;
};

}  // namespace chainmail::ops
