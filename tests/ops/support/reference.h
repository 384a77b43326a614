// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Elements of every dtype as numbers, and reductions of them one by one in double or int64: what
// the engine's results are compared with.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/types.h"

namespace chainmail::test {

/// A float16 as a double, by the definition of the format.
inline double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10U & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (bits >> 15U) != 0 ? -value : value;
}

/// The float16 nearest to `value`, for values that have one exactly or nearly.
inline std::uint16_t double_to_half(double value) {
  if (value == 0) return 0;
  const std::uint16_t sign = value < 0 ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const double steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  // Counting from the exponent's first number, a carry goes into the next exponent by itself.
  const int code = (exponent + 14) * 1024 + static_cast<int>(steps);
  return static_cast<std::uint16_t>(sign | std::min(code, 0x7c00));
}

inline std::uint16_t double_to_bfloat16(double value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

inline double bfloat16_to_double(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

template <typename T>
void store(std::byte* place, T value) {
  std::memcpy(place, &value, sizeof value);
}

template <typename T>
T load(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

/// Writes `value` as element `index`, converted as a C cast does.
inline void set_element(std::byte* data, ops::DataType type, std::size_t index, double value) {
  std::byte* place = data + index * ops::size_of(type);
  const auto whole = static_cast<std::int64_t>(value);
  switch (type) {
    case ops::DataType::kUInt8:
      return store(place, static_cast<std::uint8_t>(whole));
    case ops::DataType::kInt8:
      return store(place, static_cast<std::int8_t>(whole));
    case ops::DataType::kInt16:
      return store(place, static_cast<std::int16_t>(whole));
    case ops::DataType::kInt32:
      return store(place, static_cast<std::int32_t>(whole));
    case ops::DataType::kInt64:
      return store(place, whole);
    case ops::DataType::kUInt16:
      return store(place, static_cast<std::uint16_t>(whole));
    case ops::DataType::kUInt32:
      return store(place, static_cast<std::uint32_t>(whole));
    case ops::DataType::kUInt64:
      return store(place, static_cast<std::uint64_t>(whole));
    case ops::DataType::kBool:
      return store(place, static_cast<std::uint8_t>(value != 0 ? 1 : 0));
    case ops::DataType::kFloat16:
      return store(place, double_to_half(value));
    case ops::DataType::kBFloat16:
      return store(place, double_to_bfloat16(value));
    case ops::DataType::kFloat32:
      return store(place, static_cast<float>(value));
    case ops::DataType::kFloat64:
      return store(place, value);
  }
}

inline double get_element(const std::byte* data, ops::DataType type, std::size_t index) {
  const std::byte* place = data + index * ops::size_of(type);
  switch (type) {
    case ops::DataType::kUInt8:
    case ops::DataType::kBool:
      return load<std::uint8_t>(place);
    case ops::DataType::kInt8:
      return load<std::int8_t>(place);
    case ops::DataType::kInt16:
      return load<std::int16_t>(place);
    case ops::DataType::kInt32:
      return load<std::int32_t>(place);
    case ops::DataType::kInt64:
      return static_cast<double>(load<std::int64_t>(place));
    case ops::DataType::kUInt16:
      return load<std::uint16_t>(place);
    case ops::DataType::kUInt32:
      return load<std::uint32_t>(place);
    case ops::DataType::kUInt64:
      return static_cast<double>(load<std::uint64_t>(place));
    case ops::DataType::kFloat16:
      return half_to_double(load<std::uint16_t>(place));
    case ops::DataType::kBFloat16:
      return bfloat16_to_double(load<std::uint16_t>(place));
    case ops::DataType::kFloat32:
      return static_cast<double>(load<float>(place));
    case ops::DataType::kFloat64:
      return load<double>(place);
  }
  return 0;
}

/// The exact reduction of one element over ranks; test inputs are small enough for doubles.
inline double reduce_exactly(const std::vector<double>& terms, ops::DataType type,
                             ops::ReduceOp op) {
  const double ranks = static_cast<double>(terms.size());
  double result = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const double term = terms[i];
    const auto a = static_cast<std::int64_t>(result);
    const auto b = static_cast<std::int64_t>(term);
    switch (op) {
      case ops::ReduceOp::kSum:
      case ops::ReduceOp::kAvg:
        result += term;
        break;
      case ops::ReduceOp::kProduct:
        result *= term;
        break;
      case ops::ReduceOp::kMin:
        result = std::min(result, term);
        break;
      case ops::ReduceOp::kMax:
        result = std::max(result, term);
        break;
      case ops::ReduceOp::kBitAnd:
        result = static_cast<double>(a & b);
        break;
      case ops::ReduceOp::kBitOr:
        result = static_cast<double>(a | b);
        break;
      case ops::ReduceOp::kBitXor:
        result = static_cast<double>(a ^ b);
        break;
    }
  }
  if (type == ops::DataType::kBool) return result != 0 ? 1 : 0;
  if (op == ops::ReduceOp::kAvg) {
    return ops::is_floating_point(type) ? result / ranks : std::trunc(result / ranks);
  }
  return result;
}

}  // namespace chainmail::test
