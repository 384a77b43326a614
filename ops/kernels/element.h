// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One element of float16, bfloat16, float32 or float64: widening, scaling, rounding. Compiled for
// the host and by nvcc for the device, so that both give the same bits.
//
// Arithmetic is in float32, or float64 when the source is; one rounding to nearest even at the end.
// A NaN becomes the type's one NaN, all bits but the sign, since a GPU makes no other in float32.

#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define CHAINMAIL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CHAINMAIL_HOST_DEVICE inline
#endif

namespace chainmail::ops {

/// The bits of a float16 and of a bfloat16.
struct Float16Bits {
  std::uint16_t bits;
};
struct BFloat16Bits {
  std::uint16_t bits;
};

namespace element {

template <class To, class From>
CHAINMAIL_HOST_DEVICE To cast_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// The type that arithmetic on T is done in.
template <class T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<double> {
  using Type = double;
};

CHAINMAIL_HOST_DEVICE float widen(float value) { return value; }
CHAINMAIL_HOST_DEVICE double widen(double value) { return value; }
CHAINMAIL_HOST_DEVICE float widen(BFloat16Bits half) {
  return cast_bits<float>(static_cast<std::uint32_t>(half.bits) << 16U);
}
CHAINMAIL_HOST_DEVICE float widen(Float16Bits half) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(half.bits));
#else
  const std::uint32_t sign = (half.bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = half.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity or NaN
    return cast_bits<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
  }
  if (magnitude >= 0x400U) {
    return cast_bits<float>(sign | ((magnitude << 13U) + ((127U - 15U) << 23U)));
  }
  // Subnormal: a whole number of 2^-24.
  const float value = static_cast<float>(magnitude) * 0x1p-24F;
  return cast_bits<float>(sign | cast_bits<std::uint32_t>(value));
#endif
}

CHAINMAIL_HOST_DEVICE void round(float value, float& to) {
  to = value == value ? value : cast_bits<float>(std::uint32_t{0x7fffffff});
}
CHAINMAIL_HOST_DEVICE void round(double value, double& to) {
  to = value == value ? value : cast_bits<double>(std::uint64_t{0x7fffffffffffffff});
}
CHAINMAIL_HOST_DEVICE void round(float value, double& to) { round(static_cast<double>(value), to); }
CHAINMAIL_HOST_DEVICE void round(double value, float& to) { round(static_cast<float>(value), to); }

CHAINMAIL_HOST_DEVICE void round(float value, BFloat16Bits& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const std::uint16_t nearest = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  to.bits = value == value ? nearest : static_cast<std::uint16_t>(0x7fffU);
#else
  const auto bits = cast_bits<std::uint32_t>(value);
  const std::uint32_t nearest = bits + 0x7fffU + ((bits >> 16U) & 1U);
  to.bits = static_cast<std::uint16_t>(value == value ? nearest >> 16U : 0x7fffU);
#endif
}

CHAINMAIL_HOST_DEVICE void round(float value, Float16Bits& to) {
#ifdef __CUDA_ARCH__
  const std::uint16_t nearest = __half_as_ushort(__float2half_rn(value));
  to.bits = value == value ? nearest : static_cast<std::uint16_t>(0x7fffU);
#else
  const auto bits = cast_bits<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0x7fffU;
  if (magnitude >= 0x477ff000U) {  // from 65520 on
    half = magnitude > 0x7f800000U ? 0x7fffU : sign | 0x7c00U;
  } else if (magnitude < 0x38800000U) {
    // Adding 0.5 lets the float unit round to a whole number of 2^-24.
    const float steps = cast_bits<float>(magnitude) + 0.5F;
    half = sign | (cast_bits<std::uint32_t>(steps) - 0x3f000000U);
  } else {
    const std::uint32_t odd = (magnitude >> 13U) & 1U;
    half = sign | ((magnitude - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13U);
  }
  to.bits = static_cast<std::uint16_t>(half);
#endif
}

// A float32 that, rounded again to 16 bits, gives what rounding the float64 once would have given:
// rounding to odd (Boldo and Melquiond, 2008).
CHAINMAIL_HOST_DEVICE float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  auto bits = cast_bits<std::uint32_t>(nearest);
  const bool is_beyond = value < 0 ? back < value : back > value;
  if (is_beyond) --bits;
  return cast_bits<float>(bits | 1U);
}
CHAINMAIL_HOST_DEVICE void round(double value, BFloat16Bits& to) { round(to_odd(value), to); }
CHAINMAIL_HOST_DEVICE void round(double value, Float16Bits& to) { round(to_odd(value), to); }

CHAINMAIL_HOST_DEVICE bool is_finite(Float16Bits value) {
  return (value.bits & 0x7c00U) != 0x7c00U;
}
CHAINMAIL_HOST_DEVICE bool is_finite(BFloat16Bits value) {
  return (value.bits & 0x7f80U) != 0x7f80U;
}
CHAINMAIL_HOST_DEVICE bool is_finite(float value) {
  return (cast_bits<std::uint32_t>(value) & 0x7f800000U) != 0x7f800000U;
}
CHAINMAIL_HOST_DEVICE bool is_finite(double value) {
  return (cast_bits<std::uint64_t>(value) & 0x7ff0000000000000U) != 0x7ff0000000000000U;
}

/// source * scale as a To.
template <class To, class From>
CHAINMAIL_HOST_DEVICE To scaled(From source, typename Wide<From>::Type scale) {
  To to;
  round(widen(source) * scale, to);
  return to;
}

}  // namespace element
}  // namespace chainmail::ops
