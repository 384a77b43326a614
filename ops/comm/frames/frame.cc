// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/frames/frame.h"

#include <algorithm>

#include "base/bytes.h"

namespace chainmail::ops {
namespace {

using internal::hash64;
using internal::put_number;
using internal::take_number;

constexpr std::size_t kChecksummed = FrameHead::kBytes - sizeof(std::uint64_t);

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
  *out++ = static_cast<std::byte>(type);
  *out++ = static_cast<std::byte>(has_checksum);
  out += 2;  // zeros
  put_number(out, length);
  put_number(out, tag);
  put_number(out, message_bytes);
  put_number(out, offset);
  put_number(out, checksum);
  put_number(out, hash64(std::span<const std::byte>(bytes).first(kChecksummed)));
  return bytes;
}

std::optional<FrameHead> FrameHead::decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kBytes) return std::nullopt;
  const std::byte* own_sum = bytes.data() + kChecksummed;
  if (hash64(bytes.first(kChecksummed)) != take_number<std::uint64_t>(own_sum)) return std::nullopt;
  const auto header = MessageHeader::decode(bytes);
  if (!header) return std::nullopt;
  const std::byte* in = bytes.data() + MessageHeader::kBytes;
  FrameHead head;
  head.header = *header;
  head.type = static_cast<FrameType>(*in++);
  head.has_checksum = *in++ != std::byte{0};
  in += 2;
  head.length = take_number<std::uint32_t>(in);
  head.tag = take_number<std::uint64_t>(in);
  head.message_bytes = take_number<std::uint64_t>(in);
  head.offset = take_number<std::uint64_t>(in);
  head.checksum = take_number<std::uint64_t>(in);
  if (!is_plausible(head)) return std::nullopt;
  return head;
}

}  // namespace chainmail::ops
