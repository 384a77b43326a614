// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/wire.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"
#include "ops/kernels/cpu/halves-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace {

// Rounds whole vectors of `d` from `from` on, some at a time; `largest` collects the largest
// magnitude.
template <class Format, std::size_t kVectors, class D, class Largest>
HWY_INLINE std::size_t round_from(D d, std::uint16_t* halves, const float* source,
                                  std::size_t count, std::size_t from, float scale,
                                  Largest& largest) {
  const hn::Rebind<std::uint16_t, D> bits;
  const auto factor = hn::Set(d, scale);
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t step = lanes * kVectors;
  std::size_t i = from;
  for (; count - i >= step; i += step) {
    HalfBits<D> half[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      half[v] = Format::round(d, hn::Mul(load_anywhere(d, source + i + v * lanes), factor));
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      store_anywhere(bits, half[v], halves + i + v * lanes);
      largest = hn::Max(largest, hn::And(half[v], hn::Set(bits, 0x7fff)));
    }
  }
  return i;
}

template <class Format>
bool round_floats(std::uint16_t* halves, const float* source, std::size_t count, float scale) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const hn::Rebind<std::uint16_t, decltype(d)> bits;
  const hn::Rebind<std::uint16_t, decltype(one)> bit;
  auto largest = hn::Zero(bits);
  auto last = hn::Zero(bit);
  std::size_t done = round_from<Format, 4>(d, halves, source, count, 0, scale, largest);
  done = round_from<Format, 1>(d, halves, source, count, done, scale, largest);
  round_from<Format, 1>(one, halves, source, count, done, scale, last);
  std::array<std::uint16_t, HWY_MAX_BYTES / sizeof(float)> all{};
  hn::StoreU(largest, bits, all.data());
  return std::max(*std::max_element(all.begin(), all.end()), hn::GetLane(last)) >=
         Format::kInfinity;
}

template <class Format, bool kAdd, class D>
HWY_INLINE std::size_t widen_from(D d, float* destination, const std::uint16_t* halves,
                                  std::size_t count, std::size_t from) {
  const hn::Rebind<std::uint16_t, D> bits;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = from;
  for (; count - i >= lanes; i += lanes) {
    auto value = Format::widen(d, load_anywhere(bits, halves + i));
    if constexpr (kAdd) value = hn::Add(load_anywhere(d, destination + i), value);
    store_anywhere(d, value, destination + i);
  }
  return i;
}

template <class Format, bool kAdd>
void widen_floats(float* destination, const std::uint16_t* halves, std::size_t count) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t done = widen_from<Format, kAdd>(d, destination, halves, count, 0);
  widen_from<Format, kAdd>(one, destination, halves, count, done);
}

bool round_any(std::uint16_t* halves, const float* source, std::size_t count, float scale,
               WireFormat wire) {
  return wire == WireFormat::kFloat16 ? round_floats<Float16>(halves, source, count, scale)
                                      : round_floats<BFloat16>(halves, source, count, scale);
}

void widen_any(float* destination, const std::uint16_t* halves, std::size_t count, bool adds,
               WireFormat wire) {
  if (wire == WireFormat::kFloat16) {
    return adds ? widen_floats<Float16, true>(destination, halves, count)
                : widen_floats<Float16, false>(destination, halves, count);
  }
  return adds ? widen_floats<BFloat16, true>(destination, halves, count)
              : widen_floats<BFloat16, false>(destination, halves, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chainmail::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chainmail::ops {
namespace {

HWY_EXPORT(round_any);
HWY_EXPORT(widen_any);

// float64 goes through blocks of float32 that stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

// Rounds to odd: a float32 that, rounded again to 16 bits, gives what rounding the float64 once
// would have given (Boldo and Melquiond, 2008).
float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(back) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

void check(DataType type, WireFormat wire) {
  if ((type == DataType::kFloat32 || type == DataType::kFloat64) && wire != WireFormat::kNative) {
    return;
  }
  throw InvalidArgument(std::string("cannot convert ") + to_string(type) + " to or from the " +
                        to_string(wire) +
                        " wire format; float32 and float64 travel as float16 or bfloat16");
}

bool round_doubles(std::uint16_t* halves, const std::byte* source, std::size_t count, double scale,
                   WireFormat wire) {
  std::array<float, kBlock> block;
  bool has_nonfinite = false;
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t length = std::min(kBlock, count - start);
    for (std::size_t i = 0; i < length; ++i) {
      double value;
      std::memcpy(&value, source + (start + i) * sizeof(double), sizeof(double));
      block[i] = to_odd(value * scale);
    }
    has_nonfinite |=
        HWY_DYNAMIC_DISPATCH(round_any)(halves + start, block.data(), length, 1.0f, wire);
  }
  return has_nonfinite;
}

void widen_doubles(std::byte* destination, const std::uint16_t* halves, std::size_t count,
                   bool adds, WireFormat wire) {
  std::array<float, kBlock> block;
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t length = std::min(kBlock, count - start);
    HWY_DYNAMIC_DISPATCH(widen_any)(block.data(), halves + start, length, false, wire);
    for (std::size_t i = 0; i < length; ++i) {
      std::byte* element = destination + (start + i) * sizeof(double);
      double value = 0.0;
      if (adds) std::memcpy(&value, element, sizeof(double));
      value = adds ? value + block[i] : block[i];
      std::memcpy(element, &value, sizeof(double));
    }
  }
}

void widen(std::byte* destination, const std::byte* halves, std::size_t count, DataType type,
           bool adds, WireFormat wire) {
  check(type, wire);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(halves);
  if (type == DataType::kFloat64) return widen_doubles(destination, bits, count, adds, wire);
  HWY_DYNAMIC_DISPATCH(widen_any)(reinterpret_cast<float*>(destination), bits, count, adds, wire);
}

}  // namespace

bool round_to_wire(std::byte* halves, const std::byte* source, std::size_t count, DataType type,
                   double scale, WireFormat wire) {
  check(type, wire);
  auto* bits = reinterpret_cast<std::uint16_t*>(halves);
  if (type == DataType::kFloat64) return round_doubles(bits, source, count, scale, wire);
  return HWY_DYNAMIC_DISPATCH(round_any)(bits, reinterpret_cast<const float*>(source), count,
                                         static_cast<float>(scale), wire);
}

void widen_from_wire(std::byte* destination, const std::byte* halves, std::size_t count,
                     DataType type, WireFormat wire) {
  widen(destination, halves, count, type, false, wire);
}

void accumulate_from_wire(std::byte* destination, const std::byte* halves, std::size_t count,
                          DataType type, WireFormat wire) {
  widen(destination, halves, count, type, true, wire);
}

}  // namespace chainmail::ops
#endif  // HWY_ONCE
