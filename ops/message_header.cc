// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/message_header.h"

#include <cstdio>

#include "base/bytes.h"

namespace chainmail::ops {
std::array<std::byte, MessageHeader::kBytes> MessageHeader::encode() const noexcept {
  std::array<std::byte, kBytes> bytes;
  std::byte* out = bytes.data();
  internal::put_number(out, kMagic);
  internal::put_number(out, kVersion);
  internal::put_number(out, static_cast<std::uint8_t>(kind));
  internal::put_number(out, generation);
  internal::put_number(out, sequence);
  internal::put_number(out, count);
  internal::put_number(out, layout);
  internal::put_number(out, static_cast<std::uint8_t>(dtype));
  internal::put_number(out, static_cast<std::uint8_t>(reduce_op));
  internal::put_number(out, flags);
  return bytes;
}

std::optional<MessageHeader> MessageHeader::decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kBytes) return std::nullopt;
  const std::byte* in = bytes.data();
  if (internal::take_number<std::uint16_t>(in) != kMagic) return std::nullopt;
  if (internal::take_number<std::uint8_t>(in) != kVersion) return std::nullopt;
  MessageHeader header;
  const auto kind = internal::take_number<std::uint8_t>(in);
  header.generation = internal::take_number<std::uint32_t>(in);
  header.sequence = internal::take_number<std::uint64_t>(in);
  header.count = internal::take_number<std::uint64_t>(in);
  header.layout = internal::take_number<std::uint32_t>(in);
  const auto dtype = internal::take_number<std::uint8_t>(in);
  const auto reduce_op = internal::take_number<std::uint8_t>(in);
  header.flags = internal::take_number<std::uint16_t>(in);
  if (kind > static_cast<std::uint8_t>(OpKind::kAllocate) || dtype >= kDataTypeCount ||
      reduce_op > static_cast<std::uint8_t>(ReduceOp::kBitXor)) {
    return std::nullopt;
  }
  header.kind = static_cast<OpKind>(kind);
  header.dtype = static_cast<DataType>(dtype);
  header.reduce_op = static_cast<ReduceOp>(reduce_op);
  return header;
}

bool MessageHeader::matches(const MessageHeader& other) const noexcept {
  return kind == other.kind && generation == other.generation && sequence == other.sequence &&
         count == other.count && layout == other.layout && dtype == other.dtype &&
         reduce_op == other.reduce_op;
}

std::string MessageHeader::describe() const {
  std::array<char, 16> hash{};
  std::snprintf(hash.data(), hash.size(), "%08x", layout);
  const bool reduces =
      kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
  std::string text = std::string(to_string(kind)) + " #" + std::to_string(sequence);
  if (kind == OpKind::kSend) {
    text += " of " + std::to_string(count) + " bytes";
  } else if (kind != OpKind::kBarrier) {
    text += " of " + std::to_string(count) + " " + to_string(dtype);
  }
  text += " (";
  if (reduces) text += std::string(to_string(reduce_op)) + ", ";
  text += "layout " + std::string(hash.data());
  if (generation != 0) text += ", generation " + std::to_string(generation);
  return text + ")";
}

}  // namespace chainmail::ops
