// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/pack.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/element.h"
#include "ops/kernels/wire_block.h"
#include "ops/kernels/with_type.h"

namespace chainmail::ops {
namespace {

[[noreturn]] bool refuse(DataType type) {
  throw InvalidArgument(std::string("cannot pack or convert ") + to_string(type) +
                        ": only floating-point types can be");
}

// Elements need no alignment, so they are copied in and out.
template <class To, class From>
bool convert_typed(std::byte* target, const std::byte* source, std::size_t count, double scale) {
  const auto factor = static_cast<typename element::Wide<From>::Type>(scale);
  bool is_finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    const To to = element::scaled<To>(from, factor);
    std::memcpy(target + i * sizeof(To), &to, sizeof(To));
    is_finite &= element::is_finite(to);
  }
  return !is_finite;
}

// A message as the CPU's kernels have it: the factors follow the halves that there are.
std::vector<std::byte> compact(const std::byte* message, std::size_t part, std::size_t count) {
  std::vector<std::byte> result(wire_size(count));
  std::memcpy(result.data(), message, 2 * count);
  std::memcpy(result.data() + 2 * count, message + 2 * part, result.size() - 2 * count);
  return result;
}

// Back, with the one NaN that GPUs make.
void expand(std::byte* message, std::size_t part, std::size_t count,
            const std::vector<std::byte>& from, WireFormat wire) {
  const std::uint16_t infinity = wire == WireFormat::kFloat16 ? 0x7c00 : 0x7f80;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, from.data() + 2 * i, sizeof half);
    if ((half & 0x7fffU) > infinity) half = 0x7fff;
    std::memcpy(message + 2 * i, &half, sizeof half);
  }
  std::memcpy(message + 2 * part, from.data() + 2 * count, from.size() - 2 * count);
}

// Calls body(message, begin, length) for every message that `count` elements need.
template <class Byte, class Body>
void each_message(Byte* messages, std::size_t part, std::size_t count, const Body& body) {
  for (std::size_t begin = 0; begin < count; begin += part) {
    body(messages + begin / part * wire_stride(part), begin, std::min(part, count - begin));
  }
}

}  // namespace

std::vector<PackBlock> plan_pack(std::span<const PackedTensor> tensors) {
  std::vector<PackBlock> blocks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const PackedTensor& tensor = tensors[t];
    if (!is_floating_point(tensor.type) || (tensor.data == nullptr && tensor.count != 0)) {
      throw InvalidArgument("plan_pack: tensor " + std::to_string(t) + " of " +
                            std::to_string(tensor.count) + " " + to_string(tensor.type) +
                            (tensor.data == nullptr ? " is null" : " is not floating point"));
    }
    for (std::size_t begin = 0; begin < tensor.count; begin += PackBlock::kElements) {
      PackBlock block;
      block.data = static_cast<std::byte*>(tensor.data) + begin * size_of(tensor.type);
      block.offset = tensor.offset + begin;
      block.count =
          static_cast<std::uint32_t>(std::min(PackBlock::kElements, tensor.count - begin));
      block.type = static_cast<std::uint32_t>(tensor.type);
      blocks.push_back(block);
    }
  }
  return blocks;
}

bool pack(std::span<const PackBlock> blocks, void* buffer, DataType buffer_type, double scale) {
  bool has_nonfinite = false;
  for (const PackBlock& block : blocks) {
    std::byte* place = static_cast<std::byte*>(buffer) + block.offset * size_of(buffer_type);
    has_nonfinite |= convert(place, buffer_type, block.data, static_cast<DataType>(block.type),
                             block.count, scale);
  }
  return has_nonfinite;
}

bool unpack(std::span<const PackBlock> blocks, const void* buffer, DataType buffer_type,
            double scale) {
  bool has_nonfinite = false;
  for (const PackBlock& block : blocks) {
    const std::byte* place =
        static_cast<const std::byte*>(buffer) + block.offset * size_of(buffer_type);
    has_nonfinite |= convert(block.data, static_cast<DataType>(block.type), place, buffer_type,
                             block.count, scale);
  }
  return has_nonfinite;
}

bool convert(void* target, DataType target_type, const void* source, DataType source_type,
             std::size_t count, double scale) {
  const auto convert_to = [&](auto to) {
    const auto convert_from = [&](auto from) {
      return convert_typed<decltype(to), decltype(from)>(
          static_cast<std::byte*>(target), static_cast<const std::byte*>(source), count, scale);
    };
    return with_floating(source_type, convert_from, [&] { return refuse(source_type); });
  };
  return with_floating(target_type, convert_to, [&] { return refuse(target_type); });
}

void round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                 double scale, WireFormat wire) {
  const auto* const from = static_cast<const std::byte*>(source);
  each_message(static_cast<std::byte*>(messages), part, count,
               [&](std::byte* message, std::size_t begin, std::size_t length) {
                 std::vector<std::byte> rounded(wire_size(length));
                 static_cast<void>(round_to_wire(rounded.data(), from + begin * sizeof(float),
                                                 length, scale, wire));
                 expand(message, part, length, rounded, wire);
               });
}

void add_parts(void* result, const void* messages, std::size_t part, int message_count, int own,
               const void* own_message, std::size_t count, WireFormat wire, bool is_mean) {
  if (count == 0) return;
  std::vector<std::vector<std::byte>> terms;
  std::vector<const std::byte*> pointers;
  for (int r = 0; r < message_count; ++r) {
    const auto* const other =
        static_cast<const std::byte*>(messages) + static_cast<std::size_t>(r) * wire_stride(part);
    const auto* const term = r == own ? static_cast<const std::byte*>(own_message) : other;
    terms.push_back(compact(term, part, count));
  }
  for (const auto& term : terms) pointers.push_back(term.data());
  std::vector<std::byte> sum(count * sizeof(float));
  sum_from_wire(sum.data(), pointers, count, wire, is_mean);
  static_cast<void>(round_to_wire(terms[0].data(), sum.data(), count, 1.0, wire));
  expand(static_cast<std::byte*>(result), part, count, terms[0], wire);
}

bool widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                 WireFormat wire) {
  auto* const to = static_cast<std::byte*>(target);
  each_message(static_cast<const std::byte*>(messages), part, count,
               [&](const std::byte* message, std::size_t begin, std::size_t length) {
                 widen_from_wire(to + begin * sizeof(float), compact(message, part, length).data(),
                                 length, wire);
               });
  // Makes every NaN the one that GPUs make, and tells of them.
  return convert(target, DataType::kFloat32, target, DataType::kFloat32, count, 1.0);
}

}  // namespace chainmail::ops
