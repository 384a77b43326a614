// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/pack.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/kernels/element.h"

namespace chainmail::ops {
namespace {

// Calls `body` with a value of the type whose bits `type` stands for.
template <class Body>
bool with_type(DataType type, const Body& body) {
  switch (type) {
    case DataType::kFloat16:
      return body(Float16Bits{});
    case DataType::kBFloat16:
      return body(BFloat16Bits{});
    case DataType::kFloat32:
      return body(float{});
    case DataType::kFloat64:
      return body(double{});
    case DataType::kUInt8:
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kUInt16:
    case DataType::kUInt32:
    case DataType::kUInt64:
    case DataType::kBool:
      break;
  }
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

template <class Half, class Sum>
void add_typed(std::byte* result, const std::byte* parts, std::size_t stride, int part_count,
               int own, const std::byte* own_part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum = 0;
    for (int r = 0; r < part_count; ++r) {
      const std::byte* part =
          r == own ? own_part : parts + static_cast<std::size_t>(r) * stride * sizeof(Half);
      Half half;
      std::memcpy(&half, part + i * sizeof(Half), sizeof(Half));
      sum = r == 0 ? static_cast<Sum>(element::widen(half)) : sum + element::widen(half);
    }
    Half rounded;
    element::round(sum, rounded);
    std::memcpy(result + i * sizeof(Half), &rounded, sizeof(Half));
  }
}

template <class Half>
void add_halves_of(std::byte* result, const std::byte* parts, std::size_t stride, int part_count,
                   int own, const std::byte* own_part, std::size_t count, bool is_double) {
  if (is_double) {
    add_typed<Half, double>(result, parts, stride, part_count, own, own_part, count);
  } else {
    add_typed<Half, float>(result, parts, stride, part_count, own, own_part, count);
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
  return with_type(target_type, [&](auto to) {
    return with_type(source_type, [&](auto from) {
      return convert_typed<decltype(to), decltype(from)>(
          static_cast<std::byte*>(target), static_cast<const std::byte*>(source), count, scale);
    });
  });
}

void add_halves(void* result, const void* parts, std::size_t stride, int part_count, int own,
                const void* own_part, std::size_t count, WireFormat wire, bool is_double) {
  auto* const out = static_cast<std::byte*>(result);
  const auto* const others = static_cast<const std::byte*>(parts);
  const auto* const mine = static_cast<const std::byte*>(own_part);
  switch (wire) {
    case WireFormat::kFloat16:
      return add_halves_of<Float16Bits>(out, others, stride, part_count, own, mine, count,
                                        is_double);
    case WireFormat::kBFloat16:
      return add_halves_of<BFloat16Bits>(out, others, stride, part_count, own, mine, count,
                                         is_double);
    case WireFormat::kNative:
      throw InvalidArgument("add_halves: the wire format must be float16 or bfloat16");
  }
}

}  // namespace chainmail::ops
