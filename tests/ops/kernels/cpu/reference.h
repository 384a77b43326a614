// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the kernels must compute, one element at a time and as plainly as possible: numbers are
// decoded to double or 64-bit integers, combined, and encoded again.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/types.h"

namespace chainmail::ops::reference {

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

/// A 16-bit format: float16 has 10 bits of fraction, bfloat16 has 7.
struct Half {
  int fraction_bits;
  int smallest_exponent;
  int largest_exponent;
};
inline constexpr Half kHalf16{10, -14, 15};
inline constexpr Half kBrain16{7, -126, 127};

inline double decode(const Half& format, std::uint16_t bits) {
  const int fraction_mask = (1 << format.fraction_bits) - 1;
  const int fraction = bits & fraction_mask;
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent > format.largest_exponent - format.smallest_exponent + 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const int shift = format.smallest_exponent - format.fraction_bits;
  if (exponent == 0) return sign * std::ldexp(fraction, shift);
  return sign * std::ldexp(fraction + fraction_mask + 1, shift + exponent - 1);
}

/// Nearest, ties to even. NaN becomes the format's quiet NaN of the same sign, payload unspecified.
inline std::uint16_t encode(const Half& format, double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<std::uint16_t>(
      (format.largest_exponent - format.smallest_exponent + 2) << format.fraction_bits);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | infinity | (1 << (format.fraction_bits - 1)));
  }
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = std::max(std::ilogb(magnitude), format.smallest_exponent);
  const double steps =
      std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));  // ties to even
  // `steps` reaches 2^(fraction_bits + 1) when rounding carries; the sum below then carries too.
  const int bits =
      ((exponent - format.smallest_exponent) << format.fraction_bits) + static_cast<int>(steps);
  if (bits >= infinity) return static_cast<std::uint16_t>(sign | infinity);
  return static_cast<std::uint16_t>(sign | bits);
}

/// What arrives of `values` when blocks of 256 are multiplied by the largest power of two, up to
/// 2^126, that leaves their largest finite number finite in `format`, rounded, and divided again.
inline std::vector<float> over_the_wire(const Half& format, std::vector<float> values) {
  constexpr std::size_t kBlock = 256;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(values.size(), begin + kBlock);
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(double{values[i]}));
    }
    int shift = 126;
    while (std::isinf(decode(format, encode(format, std::ldexp(largest, shift))))) --shift;
    for (std::size_t i = begin; i < end; ++i) {
      const double half = decode(format, encode(format, std::ldexp(double{values[i]}, shift)));
      constexpr double kMost = std::numeric_limits<float>::max();
      const double back = std::ldexp(half, -shift);
      values[i] = static_cast<float>(std::isfinite(back) ? std::clamp(back, -kMost, kMost) : back);
    }
  }
  return values;
}

inline bool is_half(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16;
}
inline const Half& format_of(DataType type) {
  return type == DataType::kFloat16 ? kHalf16 : kBrain16;
}

template <typename Float>
Float combine_floats(Float a, Float b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::isnan(a) || a < b ? a : b;
    case ReduceOp::kMax:
      return std::isnan(a) || a > b ? a : b;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return 0;
}

template <typename Int>
Int combine_integers(Int a, Int b, ReduceOp op) {
  // In 64 unsigned bits everything wraps, and the lower bits are those of the narrow result.
  const auto wide_a = static_cast<std::uint64_t>(a);
  const auto wide_b = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<Int>(wide_a + wide_b);
    case ReduceOp::kProduct:
      return static_cast<Int>(wide_a * wide_b);
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a > b ? a : b;
    case ReduceOp::kBitAnd:
      return static_cast<Int>(wide_a & wide_b);
    case ReduceOp::kBitOr:
      return static_cast<Int>(wide_a | wide_b);
    case ReduceOp::kBitXor:
      return static_cast<Int>(wide_a ^ wide_b);
  }
  return 0;
}

inline bool combine_bools(bool a, bool b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return a || b;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return a && b;
    case ReduceOp::kBitXor:
      return a != b;
  }
  return false;
}

template <typename Int>
void reduce_integer(std::byte* to, const std::byte* const* sources, std::size_t count,
                    std::size_t index, ReduceOp op) {
  Int value = read<Int>(sources[0] + index * sizeof(Int));
  for (std::size_t s = 1; s < count; ++s) {
    value = combine_integers(value, read<Int>(sources[s] + index * sizeof(Int)), op);
  }
  write(to, value);
}

template <typename Float>
void reduce_float(std::byte* to, const std::byte* const* sources, std::size_t count,
                  std::size_t index, ReduceOp op, double scale) {
  Float value = read<Float>(sources[0] + index * sizeof(Float));
  for (std::size_t s = 1; s < count; ++s) {
    value = combine_floats(value, read<Float>(sources[s] + index * sizeof(Float)), op);
  }
  write(to, static_cast<Float>(value * static_cast<Float>(scale)));
}

inline void reduce_half(std::byte* to, const std::byte* const* sources, std::size_t count,
                        std::size_t index, DataType type, ReduceOp op, double scale) {
  const Half& format = format_of(type);
  const auto element = [&](std::size_t s) {
    return static_cast<float>(decode(format, read<std::uint16_t>(sources[s] + index * 2)));
  };
  float value = element(0);
  for (std::size_t s = 1; s < count; ++s) value = combine_floats(value, element(s), op);
  write(to, encode(format, value * static_cast<float>(scale)));
}

/// The reduction of element `index` of `count` sources, written to `to`.
inline void reduce_element(std::byte* to, const std::byte* const* sources, std::size_t count,
                           std::size_t index, DataType type, ReduceOp op, double scale) {
  switch (type) {
    case DataType::kUInt8:
      return reduce_integer<std::uint8_t>(to, sources, count, index, op);
    case DataType::kInt8:
      return reduce_integer<std::int8_t>(to, sources, count, index, op);
    case DataType::kInt16:
      return reduce_integer<std::int16_t>(to, sources, count, index, op);
    case DataType::kInt32:
      return reduce_integer<std::int32_t>(to, sources, count, index, op);
    case DataType::kInt64:
      return reduce_integer<std::int64_t>(to, sources, count, index, op);
    case DataType::kUInt16:
      return reduce_integer<std::uint16_t>(to, sources, count, index, op);
    case DataType::kUInt32:
      return reduce_integer<std::uint32_t>(to, sources, count, index, op);
    case DataType::kUInt64:
      return reduce_integer<std::uint64_t>(to, sources, count, index, op);
    case DataType::kBool: {
      bool value = read<std::uint8_t>(sources[0] + index) != 0;
      for (std::size_t s = 1; s < count; ++s) {
        value = combine_bools(value, read<std::uint8_t>(sources[s] + index) != 0, op);
      }
      return write<std::uint8_t>(to, value ? 1 : 0);
    }
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return reduce_half(to, sources, count, index, type, op, scale);
    case DataType::kFloat32:
      return reduce_float<float>(to, sources, count, index, op, scale);
    case DataType::kFloat64:
      return reduce_float<double>(to, sources, count, index, op, scale);
  }
}

/// True when two elements have the same bits, or are both NaN.
inline bool same(const std::byte* a, const std::byte* b, DataType type) {
  if (std::memcmp(a, b, size_of(type)) == 0) return true;
  if (type == DataType::kFloat32) return std::isnan(read<float>(a)) && std::isnan(read<float>(b));
  if (type == DataType::kFloat64) return std::isnan(read<double>(a)) && std::isnan(read<double>(b));
  if (!is_half(type)) return false;
  return std::isnan(decode(format_of(type), read<std::uint16_t>(a))) &&
         std::isnan(decode(format_of(type), read<std::uint16_t>(b)));
}

}  // namespace chainmail::ops::reference
