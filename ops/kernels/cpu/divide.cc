// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

template <typename T>
void divide(std::byte* data, std::size_t count, std::int64_t divisor) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    // Not in int64: that has no room for the upper half of uint64.
    using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void divide_in_place(std::byte* data, std::size_t count, DataType type, std::int64_t divisor) {
  if (divisor < 1 || is_floating_point(type)) {
    throw InvalidArgument(std::string("cannot divide ") + to_string(type) + " by " +
                          std::to_string(divisor) +
                          ": this is for integers and a divisor of at least 1");
  }
  switch (type) {
    case DataType::kUInt8:
      return divide<std::uint8_t>(data, count, divisor);
    case DataType::kInt8:
      return divide<std::int8_t>(data, count, divisor);
    case DataType::kInt16:
      return divide<std::int16_t>(data, count, divisor);
    case DataType::kInt32:
      return divide<std::int32_t>(data, count, divisor);
    case DataType::kInt64:
      return divide<std::int64_t>(data, count, divisor);
    case DataType::kUInt16:
      return divide<std::uint16_t>(data, count, divisor);
    case DataType::kUInt32:
      return divide<std::uint32_t>(data, count, divisor);
    case DataType::kUInt64:
      return divide<std::uint64_t>(data, count, divisor);
    case DataType::kBool:
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kFloat32:
    case DataType::kFloat64:
      return;
  }
}

}  // namespace chainmail::ops
