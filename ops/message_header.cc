// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/message_header.h"

#include <cstdio>
#include <type_traits>

namespace chainmail::ops {
namespace {

// Written byte by byte in little-endian order; compilers turn it into plain moves.
class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}
  template <typename T>
  void put(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      *out_++ = static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff);
    }
  }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) : in_(in) {}
  template <typename T>
  T take() {
    static_assert(std::is_unsigned_v<T>);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(*in_++) << (8 * i);
    }
    return static_cast<T>(value);
  }

 private:
  const std::byte* in_;
};

}  // namespace

std::array<std::byte, MessageHeader::kBytes> MessageHeader::encode() const noexcept {
  std::array<std::byte, kBytes> bytes;
  Writer writer(bytes.data());
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint8_t>(kind));
  writer.put(generation);
  writer.put(sequence);
  writer.put(count);
  writer.put(layout);
  writer.put(static_cast<std::uint8_t>(dtype));
  writer.put(static_cast<std::uint8_t>(reduce_op));
  writer.put(flags);
  return bytes;
}

std::optional<MessageHeader> MessageHeader::decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kBytes) return std::nullopt;
  Reader reader(bytes.data());
  if (reader.take<std::uint16_t>() != kMagic) return std::nullopt;
  if (reader.take<std::uint8_t>() != kVersion) return std::nullopt;
  MessageHeader header;
  const auto kind = reader.take<std::uint8_t>();
  header.generation = reader.take<std::uint32_t>();
  header.sequence = reader.take<std::uint64_t>();
  header.count = reader.take<std::uint64_t>();
  header.layout = reader.take<std::uint32_t>();
  const auto dtype = reader.take<std::uint8_t>();
  const auto reduce_op = reader.take<std::uint8_t>();
  header.flags = reader.take<std::uint16_t>();
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
