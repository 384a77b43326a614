// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/frames/frame.h"

#include <algorithm>

#include "base/net/crc32c.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kChecksummed = FrameHead::kBytes - sizeof(std::uint32_t);

void put(std::byte* out, std::uint64_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
}

std::uint64_t take(const std::byte* in, std::size_t bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= std::to_integer<std::uint64_t>(in[i]) << (8 * i);
  }
  return value;
}

std::uint32_t take32(const std::byte* in) noexcept {
  return static_cast<std::uint32_t>(take(in, 4));
}

bool is_plausible(const FrameHead& head) noexcept {
  switch (head.type) {
    case FrameType::kData:
      // Subtractions, not sums: nothing here can overflow.
      return head.length <= kMaxFramePayload && head.offset <= head.message_bytes &&
             head.length <= head.message_bytes - head.offset &&
             (head.length != 0 || head.message_bytes == 0);
    case FrameType::kAbort:
      return head.length <= kMaxErrorBytes;
    case FrameType::kReady:
    case FrameType::kInquiry:
    case FrameType::kGoodbye:
    case FrameType::kOffer:
    case FrameType::kHold:
    case FrameType::kProgress:
      return head.length == 0;
  }
  return false;
}

}  // namespace

std::array<std::byte, FrameHead::kBytes> FrameHead::encode() const noexcept {
  std::array<std::byte, kBytes> bytes{};
  const auto fixed = header.encode();
  std::copy(fixed.begin(), fixed.end(), bytes.begin());
  std::byte* out = bytes.data() + MessageHeader::kBytes;
  put(out, static_cast<std::uint64_t>(type), 1);
  put(out + 1, has_checksum ? 1 : 0, 1);
  put(out + 4, length, 4);
  put(out + 8, tag, 8);
  put(out + 16, message_bytes, 8);
  put(out + 24, offset, 8);
  put(out + 32, checksum, 4);
  put(out + 36, internal::crc32c(std::span(bytes).first(kChecksummed)), 4);
  return bytes;
}

std::optional<FrameHead> FrameHead::decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kBytes) return std::nullopt;
  if (internal::crc32c(bytes.first(kChecksummed)) != take32(bytes.data() + kChecksummed)) {
    return std::nullopt;
  }
  const auto header = MessageHeader::decode(bytes);
  if (!header) return std::nullopt;
  const std::byte* in = bytes.data() + MessageHeader::kBytes;
  FrameHead head;
  head.header = *header;
  head.type = static_cast<FrameType>(take(in, 1));
  head.has_checksum = take(in + 1, 1) != 0;
  head.length = take32(in + 4);
  head.tag = take(in + 8, 8);
  head.message_bytes = take(in + 16, 8);
  head.offset = take(in + 24, 8);
  head.checksum = take32(in + 32);
  if (!is_plausible(head)) return std::nullopt;
  return head;
}

}  // namespace chainmail::ops
