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
#include "ops/kernels/cpu/streams.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/wire.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/halves-inl.h"

#ifndef CHAINMAIL_ROUNDING_
#define CHAINMAIL_ROUNDING_
namespace chainmail::ops {
namespace {
struct Rounding {
  std::uint16_t* halves;
  const float* source;
  std::size_t count;
  float scale;
};
}  // namespace
}  // namespace chainmail::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> scaled(D d, const Rounding& job, std::size_t at) {
  return hn::Mul(load_anywhere(d, job.source + at), hn::Set(d, job.scale));
}

#if HWY_TARGET != HWY_SCALAR
// Two vectors of `d` at a time, kSteps times `stride` elements apart, from `from` on as long as
// `step` elements are left before `to`; `largest` collects the largest magnitude.
template <class Format, std::size_t kSteps, class D>
HWY_INLINE std::size_t round_pairs(D d, const Rounding& job, const Walk& walk,
                                   TwoHalfBits<D>& largest) {
  const hn::Repartition<std::uint16_t, D> bits;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t kAhead = 256;  // 1 KiB in each stream; 1.1 times as fast where it is cached
  std::size_t i = walk.from;
  for (; walk.to - i >= walk.step; i += walk.step) {
    const bool is_far = walk.to - i > kAhead + walk.step;
    for (std::size_t s = 0; s < kSteps; ++s) {
      const std::size_t at = i + s * walk.stride;
      if (is_far) {
        hwy::Prefetch(job.source + at + kAhead);
        hwy::Prefetch(job.source + at + kAhead + lanes);
      }
      const auto two = Format::round_two(d, scaled(d, job, at), scaled(d, job, at + lanes));
      store_anywhere(bits, two, job.halves + at);
      largest = hn::Max(largest, hn::And(two, hn::Set(bits, 0x7fff)));
    }
  }
  return i;
}
#endif

template <class Format, class D>
HWY_INLINE std::size_t round_from(D d, const Rounding& job, std::size_t from,
                                  HalfBits<D>& largest) {
  const hn::Rebind<std::uint16_t, D> bits;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = from;
  for (; job.count - i >= lanes; i += lanes) {
    const auto half = Format::round(d, scaled(d, job, i));
    store_anywhere(bits, half, job.halves + i);
    largest = hn::Max(largest, hn::And(half, hn::Set(bits, 0x7fff)));
  }
  return i;
}

template <class D>
std::uint16_t largest_lane(D d, hn::Vec<D> value) {
  std::array<std::uint16_t, HWY_MAX_BYTES / sizeof(std::uint16_t)> all{};
  hn::StoreU(value, d, all.data());
  return *std::max_element(all.begin(), all.end());
}

template <class Format>
bool round_floats(const Rounding& job) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const hn::Rebind<std::uint16_t, decltype(d)> bits;
  const hn::Rebind<std::uint16_t, decltype(one)> bit;
  auto largest = hn::Zero(bits);
  auto last = hn::Zero(bit);
  std::size_t done = 0;
  std::uint16_t of_pairs = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<std::uint16_t, decltype(d)> two;
  auto pairs = hn::Zero(two);
  const std::size_t pair = 2 * hn::Lanes(d);
  const std::size_t length = stream_length(job.count, sizeof(float), pair);
  round_pairs<Format, kStreams>(d, job, {0, length, pair, length}, pairs);
  done = kStreams * length;
  done = round_pairs<Format, 2>(d, job, {done, job.count, 2 * pair, pair}, pairs);
  of_pairs = largest_lane(two, pairs);
#endif
  done = round_from<Format>(d, job, done, largest);
  round_from<Format>(one, job, done, last);
  return std::max({of_pairs, largest_lane(bits, largest), hn::GetLane(last)}) >= Format::kInfinity;
}

// kVectors of `d`, `stride` elements apart, as long as `step` elements are left.
template <class Format, bool kAdd, std::size_t kVectors, class D>
HWY_INLINE std::size_t widen_from(D d, float* destination, const std::uint16_t* halves,
                                  const Walk& walk) {
  const hn::Rebind<std::uint16_t, D> bits;
  std::size_t i = walk.from;
  for (; walk.to - i >= walk.step; i += walk.step) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * walk.stride;
      auto value = Format::widen(d, load_anywhere(bits, halves + at));
      if constexpr (kAdd) value = hn::Add(load_anywhere(d, destination + at), value);
      store_anywhere(d, value, destination + at);
    }
  }
  return i;
}

template <class Format, bool kAdd>
void widen_floats(float* destination, const std::uint16_t* halves, std::size_t count) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t length = stream_length(count, sizeof(float), lanes);
  widen_from<Format, kAdd, kStreams>(d, destination, halves, {0, length, lanes, length});
  std::size_t done = kStreams * length;
  done = widen_from<Format, kAdd, 1>(d, destination, halves, {done, count, lanes, lanes});
  widen_from<Format, kAdd, 1>(one, destination, halves, {done, count, 1, 1});
}

bool round_any(std::uint16_t* halves, const float* source, std::size_t count, float scale,
               WireFormat wire) {
  return wire == WireFormat::kFloat16 ? round_floats<Float16>({halves, source, count, scale})
                                      : round_floats<BFloat16>({halves, source, count, scale});
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
