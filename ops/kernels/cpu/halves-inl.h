// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// float16 and bfloat16 <-> float32 in vectors; included once per instruction set (Highway).
//
// All instruction sets give the same bits: nearest even, NaN stays NaN (quiet, upper payload kept).
// Highway 1.0.3's own float16 code truncates without F16C, and its bfloat16 code always does.

#if defined(CHAINMAIL_HALVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAINMAIL_HALVES_INL_H_
#undef CHAINMAIL_HALVES_INL_H_
#else
#define CHAINMAIL_HALVES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef CHAINMAIL_HAS_F16C
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define CHAINMAIL_HAS_F16C 1
#else
#define CHAINMAIL_HAS_F16C 0
#endif

/// As LoadU and StoreU for any address: with a single lane those dereference the pointer.
template <class D>
HWY_INLINE hn::Vec<D> load_anywhere(D d, const hn::TFromD<D>* from) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    hn::TFromD<D> value;
    std::memcpy(&value, static_cast<const void*>(from), sizeof(value));
    return hn::Set(d, value);
  } else {
    return hn::LoadU(d, from);
  }
}
template <class D>
HWY_INLINE void store_anywhere(D d, hn::Vec<D> value, hn::TFromD<D>* to) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    const hn::TFromD<D> lane = hn::GetLane(value);
    std::memcpy(static_cast<void*>(to), &lane, sizeof(lane));
  } else {
    hn::StoreU(value, d, to);
  }
}

/// A float32 tag `d` and the bits of as many halves.
template <class D>
using HalfBits = hn::Vec<hn::Rebind<std::uint16_t, D>>;
/// Those of two vectors.
template <class D>
using TwoHalfBits = hn::Vec<hn::Repartition<std::uint16_t, D>>;

struct BFloat16 {
  static constexpr std::uint16_t kInfinity = 0x7f80;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, HalfBits<D> bits) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }

  /// The half is the upper half.
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> nearest(D /*d*/, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
    const auto nan = hn::Or(bits, hn::Set(du, 0x400000));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, rounded);
  }

  template <class D>
  static HWY_INLINE HalfBits<D> round(D d, hn::Vec<D> value) {
    const hn::RebindToSigned<D> di;
    return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(),
                        hn::BitCast(di, hn::ShiftRight<16>(nearest(d, value))));
  }

#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE TwoHalfBits<D> round_two(D d, hn::Vec<D> low, hn::Vec<D> high) {
    const hn::Repartition<std::uint16_t, D> d16;
    return hn::ConcatOdd(d16, hn::BitCast(d16, nearest(d, high)),
                         hn::BitCast(d16, nearest(d, low)));
  }
#endif
};

struct Float16 {
  static constexpr std::uint16_t kInfinity = 0x7c00;

#if CHAINMAIL_HAS_F16C
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, HalfBits<D> bits) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  }

  template <class D>
  static HWY_INLINE HalfBits<D> round(D /*d*/, hn::Vec<D> value) {
    return hn::BitCast(hn::Rebind<std::uint16_t, D>(),
                       hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  }
#else
  // The exponent is rebiased in integers; subnormals are renormalised by a float subtraction.
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, HalfBits<D> bits) {
    const hn::RebindToUnsigned<D> du;
    const auto wide = hn::PromoteTo(du, bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
    const auto magnitude = hn::And(wide, hn::Set(du, 0x7fff));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(du, (127 - 15) << 23));
    const auto special = hn::Add(shifted, hn::Set(du, (255 - 31) << 23));
    const auto magic = hn::Set(du, 113 << 23);
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(shifted, magic)), hn::BitCast(d, magic)));
    const auto quiet =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7c00)), hn::Set(du, 1u << 22));
    auto out =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bff)), hn::Or(special, quiet), normal);
    out = hn::IfThenElse(hn::Gt(hn::Set(du, 0x0400), magnitude), subnormal, out);
    return hn::BitCast(d, hn::Or(out, sign));
  }

  template <class D>
  static HWY_INLINE HalfBits<D> round(D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(du, value);
    const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
    const auto magnitude = hn::Xor(bits, sign);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto rebias = hn::Set(du, (std::uint32_t{15} - 127u) << 23);
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rebias), hn::Add(odd, hn::Set(du, 0xfff))));
    // Adding 0.5 lets the float unit round a subnormal half to its last place.
    const auto half = hn::Set(du, 126u << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff));
    const auto nan = hn::Or(payload, hn::Set(du, 0x7e00));
    auto out = hn::IfThenElse(hn::Gt(hn::Set(du, 113u << 23), magnitude), subnormal, normal);
    out =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, (143u << 23) - 1)), hn::Set(du, 0x7c00), out);
    out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), nan, out);
    out = hn::Or(out, hn::ShiftRight<16>(sign));
    return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(di, out));
  }
#endif

#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE TwoHalfBits<D> round_two(D d, hn::Vec<D> low, hn::Vec<D> high) {
    return hn::Combine(hn::Repartition<std::uint16_t, D>(), round(d, high), round(d, low));
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace chainmail::ops
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
