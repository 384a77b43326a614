// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/cpu/blocks.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "ops/kernels/block_wire.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/blocks.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"
#include "ops/kernels/cpu/halves-inl.h"

#ifndef CHAINMAIL_BLOCK_SCALE_
#define CHAINMAIL_BLOCK_SCALE_
namespace chainmail::ops {
namespace {

/// Elements that the vector code works on at a time: whole blocks, and codes that are whole bytes.
constexpr std::size_t kGroup = kWireBlock;
static_assert(kGroup % kBlocksInt8.block == 0 && kGroup % kBlocksInt4.block == 0);

constexpr std::uint16_t kNanScale = 0x7fc0;
constexpr std::uint32_t kNotFinite = 0x7f800000;
constexpr std::uint32_t kVanishing = (127U - 100U) << 23U;  // 2^-100
/// Adding this rounds to whole numbers, to nearest even, and leaves them in the lower bits.
constexpr float kRounder = 0x1.8p23F;

struct BlockScale {
  std::uint16_t bits = 0;
  float scale = 0;
  float inverse = 0;
};

/// For a block whose largest magnitude has these bits: finite, and not vanishing.
inline BlockScale scale_for(std::uint32_t largest, float most) {
  // From here on `most` times the scale, rounded up, would be infinite.
  const auto limit = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max() / most) >> 16U;
  const float magnitude = std::bit_cast<float>(largest);
  const std::uint32_t up = (std::bit_cast<std::uint32_t>(magnitude / most) + 0xffffU) >> 16U;
  const float scale = std::bit_cast<float>(std::min(up, limit) << 16U);
  return {static_cast<std::uint16_t>(std::min(up, limit)), scale,
          up <= limit ? 1.0F / scale : most / magnitude};
}

inline float widen_scale(const std::byte* message, std::size_t block) {
  std::uint16_t bits;
  std::memcpy(&bits, message + block * sizeof bits, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

inline bool is_finite_scale(float scale) {
  return (std::bit_cast<std::uint32_t>(scale) & kNotFinite) != kNotFinite;
}

struct Encoding {
  std::byte* message;
  const float* source;
  float* residual;  ///< or null
  std::size_t count;
  float factor;
  BlockFormat format;
  RoundingError* error;  ///< or null
};

struct Summing {
  float* destination;
  const std::byte* const* messages;
  std::size_t message_count;
  bool adds;  ///< to what is in the destination
  std::size_t count;
  BlockFormat format;
};

}  // namespace
}  // namespace chainmail::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace {

// y of a block into `values`; the largest magnitude's bits, NaN's above all others.
template <bool kHasResidual>
std::uint32_t load_block(const Encoding& job, std::size_t at, std::size_t length, float* values) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, job.factor);
  const auto magnitude = hn::Set(di, 0x7fffffff);
  const auto load = [&](std::size_t i) HWY_ATTR {
    auto value = hn::Mul(load_anywhere(d, job.source + at + i), factor);
    if constexpr (kHasResidual) value = hn::Add(value, load_anywhere(d, job.residual + at + i));
    hn::Store(value, d, values + i);
    return hn::And(hn::BitCast(di, value), magnitude);
  };
  auto first = hn::Zero(di);
  auto second = hn::Zero(di);
  for (std::size_t i = 0; i < length; i += 2 * lanes) {
    first = hn::Max(first, load(i));
    second = hn::Max(second, load(i + lanes));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, hn::Max(first, second))));
}

// A code in every byte of `codes`.
template <bool kHasResidual>
void round_block(const BlockScale& scale, const float* values, std::size_t length,
                 std::uint8_t* codes, float* residual) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto rounder = hn::Set(d, kRounder);
  const auto inverse = hn::Set(d, scale.inverse);
  const auto unit = hn::Set(d, scale.scale);
  for (std::size_t i = 0; i < length; i += hn::Lanes(d)) {
    const auto value = hn::Load(d, values + i);
    const auto rounded = hn::Add(hn::Mul(value, inverse), rounder);
    store_anywhere(bytes, hn::TruncateTo(bytes, hn::BitCast(du, rounded)), codes + i);
    if constexpr (kHasResidual) {
      const auto sent = hn::Mul(hn::Sub(rounded, rounder), unit);
      store_anywhere(d, hn::Sub(value, sent), residual + i);
    }
  }
}

void add_squares(const float* values, std::size_t length, double& sum) {
  const hn::ScalableTag<float> d;
  auto squares = hn::Zero(d);
  for (std::size_t i = 0; i < length; i += hn::Lanes(d)) {
    const auto value = load_anywhere(d, values + i);
    squares = hn::Add(squares, hn::Mul(value, value));
  }
  sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, squares)));
}

// Whole blocks from `at` on, whose codes go to `codes` byte by byte; true when one is not finite.
template <bool kHasResidual>
bool encode_blocks_at(const Encoding& job, std::size_t at, std::size_t length, std::byte* scales,
                      std::uint8_t* codes) {
  HWY_ALIGN float values[kGroup];
  bool has_nonfinite = false;
  const std::size_t block = job.format.block;
  for (std::size_t begin = 0; begin < length; begin += block) {
    const std::uint32_t largest = load_block<kHasResidual>(job, at + begin, block, values);
    BlockScale scale;
    [[maybe_unused]] float* const residual = kHasResidual ? job.residual + at + begin : nullptr;
    if (largest >= kVanishing && largest < kNotFinite) {
      scale = scale_for(largest, static_cast<float>(job.format.most));
      round_block<kHasResidual>(scale, values, block, codes + begin, residual);
    } else {
      std::memset(codes + begin, 0, block);
      if (largest >= kNotFinite) {
        scale.bits = kNanScale;
        has_nonfinite = true;
      } else if constexpr (kHasResidual) {
        std::memcpy(static_cast<void*>(residual), values, block * sizeof(float));
      }
    }
    if constexpr (kHasResidual) {
      if (job.error != nullptr && largest < kNotFinite) {
        add_squares(values, block, job.error->given);
        add_squares(residual, block, job.error->lost);
      }
    }
    std::memcpy(scales, &scale.bits, sizeof scale.bits);
    scales += sizeof scale.bits;
  }
  return has_nonfinite;
}

// Two codes into each byte.
void join_halves(std::byte* to, const std::uint8_t* codes, std::size_t length) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto low = hn::Set(d, 0x0f);
  const auto high = hn::Set(d, 0xf0);
  auto* const out = reinterpret_cast<std::uint8_t*>(to);
  const auto* const in = reinterpret_cast<const std::uint16_t*>(codes);
  for (std::size_t i = 0; i < length / 2; i += hn::Lanes(d)) {
    const auto two = load_anywhere(d, in + i);
    const auto joined = hn::Or(hn::And(two, low), hn::And(hn::ShiftRight<4>(two), high));
    store_anywhere(bytes, hn::TruncateTo(bytes, joined), out + i);
  }
}

template <bool kHasResidual>
bool encode_any(const Encoding& job) {
  const BlockFormat& format = job.format;
  std::byte* scales = job.message;
  std::byte* out = job.message + format.scales(job.count) * sizeof(std::uint16_t);
  HWY_ALIGN std::uint8_t codes[kGroup];
  bool has_nonfinite = false;
  for (std::size_t at = 0; at < job.count; at += kGroup) {
    const std::size_t length = std::min(kGroup, job.count - at);
    const std::size_t code_bytes = format.code_bytes(length);
    if (length == kGroup && format.bits == 8) {
      has_nonfinite |= encode_blocks_at<kHasResidual>(job, at, length, scales,
                                                      reinterpret_cast<std::uint8_t*>(out));
    } else if (length == kGroup) {
      has_nonfinite |= encode_blocks_at<kHasResidual>(job, at, length, scales, codes);
      join_halves(out, codes, length);
    } else {
      // The last blocks as if zeros came after them: those change no scale.
      float source[kGroup] = {};
      float residual[kGroup] = {};
      std::memcpy(source, static_cast<const void*>(job.source + at), length * sizeof(float));
      if constexpr (kHasResidual) {
        std::memcpy(residual, static_cast<const void*>(job.residual + at), length * sizeof(float));
      }
      const Encoding rest{nullptr, source, residual, length, job.factor, format, job.error};
      const std::size_t whole = format.scales(length) * format.block;
      has_nonfinite |= encode_blocks_at<kHasResidual>(rest, 0, whole, scales, codes);
      if constexpr (kHasResidual) {
        std::memcpy(static_cast<void*>(job.residual + at), residual, length * sizeof(float));
      }
      std::byte joined[kGroup / 2];
      if (format.bits == 4) join_halves(joined, codes, whole);
      std::memcpy(out, format.bits == 4 ? joined : reinterpret_cast<std::byte*>(codes), code_bytes);
    }
    scales += format.scales(length) * sizeof(std::uint16_t);
    out += code_bytes;
  }
  return has_nonfinite;
}

bool encode_here(const Encoding& job) {
  return job.residual != nullptr ? encode_any<true>(job) : encode_any<false>(job);
}

// A vector of codes, of those that lie byte by byte.
template <bool kAdds, class D>
HWY_INLINE void put_codes(D d, hn::Vec<hn::Rebind<std::int8_t, D>> codes, hn::Vec<D> scale,
                          float* to) {
  const hn::RebindToSigned<D> di;
  auto value = hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, codes)), scale);
  if constexpr (kAdds) value = hn::Add(load_anywhere(d, to), value);
  store_anywhere(d, value, to);
}

template <bool kAdds>
void widen_bytes(float* to, const std::uint8_t* codes, std::size_t length, float scale) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int8_t, decltype(d)> bytes;
  const auto* const in = reinterpret_cast<const std::int8_t*>(codes);
  for (std::size_t i = 0; i < length; i += hn::Lanes(d)) {
    put_codes<kAdds>(d, load_anywhere(bytes, in + i), hn::Set(d, scale), to + i);
  }
}

template <bool kAdds>
void widen_halves(float* to, const std::uint8_t* codes, std::size_t length, float scale) {
#if HWY_TARGET == HWY_SCALAR
  const hn::CappedTag<float, 1> d;
  const hn::Rebind<std::int8_t, decltype(d)> byte;
  for (std::size_t i = 0; i < length; ++i) {
    const int code = (codes[i / 2] >> (i % 2 * 4)) & 0xf;
    put_codes<kAdds>(d, hn::Set(byte, static_cast<std::int8_t>((code ^ 8) - 8)), hn::Set(d, scale),
                     to + i);
  }
#else
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const hn::Rebind<std::int8_t, decltype(d)> signed_bytes;
  const std::size_t lanes = hn::Lanes(d);
  const auto half = hn::Set(bytes, 0xf);
  const auto sign = hn::Set(bytes, 8);
  const auto unit = hn::Set(d, scale);
  for (std::size_t i = 0; i < length; i += 2 * lanes) {
    const auto two = load_anywhere(bytes, codes + i / 2);
    const auto first = hn::Sub(hn::Xor(hn::And(two, half), sign), sign);
    const auto second = hn::Sub(hn::Xor(hn::ShiftRight<4>(two), sign), sign);
    put_codes<kAdds>(d, hn::BitCast(signed_bytes, hn::InterleaveLower(bytes, first, second)), unit,
                     to + i);
    put_codes<kAdds>(d, hn::BitCast(signed_bytes, hn::InterleaveUpper(bytes, first, second)), unit,
                     to + i + lanes);
  }
#endif
}

template <bool kAdds>
HWY_INLINE void widen_block(const BlockFormat& format, float* to, const std::uint8_t* codes,
                            float scale) {
  format.bits == 8 ? widen_bytes<kAdds>(to, codes, format.block, scale)
                   : widen_halves<kAdds>(to, codes, format.block, scale);
}

// Always the same NaN: which of several a sum would have depends on the order of its operands in
// the machine code.
void fill_with_nan(float* to, std::size_t length) {
  const std::uint32_t bits = std::uint32_t{kNanScale} << 16U;
  for (std::size_t i = 0; i < length; ++i) {
    std::memcpy(static_cast<void*>(to + i), &bits, sizeof bits);
  }
}

// The block at `at`, of which `length` elements are there.
void sum_block(const Summing& job, std::size_t at, std::size_t length) {
  const BlockFormat& format = job.format;
  const std::size_t block = at / format.block;
  const std::size_t codes_at =
      format.scales(job.count) * sizeof(std::uint16_t) + at * format.bits / 8;
  HWY_ALIGN float values[kGroup];
  std::uint8_t last_codes[kGroup];
  const bool is_whole = length == format.block;
  float* const to = is_whole ? job.destination + at : values;
  if (!is_whole) {
    std::memset(values, 0, sizeof values);
    std::memcpy(values, static_cast<const void*>(job.destination + at), length * sizeof(float));
  }
  bool adds = job.adds;
  bool is_finite = true;
  for (std::size_t m = 0; m < job.message_count; ++m) {
    const std::byte* const message = job.messages[m];
    const float scale = widen_scale(message, block);
    is_finite &= is_finite_scale(scale);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(message + codes_at);
    if (!is_whole) {  // nothing behind the end of a message is ours to read
      std::memset(last_codes, 0, sizeof last_codes);
      std::memcpy(last_codes, codes, format.code_bytes(length));
      codes = last_codes;
    }
    adds ? widen_block<true>(format, to, codes, scale)
         : widen_block<false>(format, to, codes, scale);
    adds = true;
  }
  if (!is_finite) fill_with_nan(to, length);
  if (!is_whole) {
    std::memcpy(static_cast<void*>(job.destination + at), values, length * sizeof(float));
  }
}

void sum_here(const Summing& job) {
  const std::size_t block = job.format.block;
  for (std::size_t at = 0; at < job.count; at += block) {
    sum_block(job, at, std::min(block, job.count - at));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chainmail::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chainmail::ops {
namespace {

HWY_EXPORT(encode_here);
HWY_EXPORT(sum_here);

const BlockFormat& checked_format(std::size_t bytes, std::size_t count, WireFormat wire) {
  if (!is_in_blocks(wire)) {
    throw InvalidArgument(std::string("the wire format ") + to_string(wire) +
                          " has no blocks of integers; int8 and int4 have");
  }
  const BlockFormat& format = block_format(wire);
  if (bytes == format.size(count)) return format;
  throw InvalidArgument("a message of " + std::to_string(count) + " elements as " +
                        to_string(wire) + " has " + std::to_string(format.size(count)) +
                        " bytes, not " + std::to_string(bytes) +
                        ": it was cut, or is of another operation");
}

}  // namespace

bool encode_blocks(std::span<std::byte> message, const std::byte* source, std::byte* residual,
                   std::size_t count, double scale, WireFormat wire, RoundingError* error) {
  const BlockFormat& format = checked_format(message.size(), count, wire);
  return HWY_DYNAMIC_DISPATCH(encode_here)({message.data(), reinterpret_cast<const float*>(source),
                                            reinterpret_cast<float*>(residual), count,
                                            static_cast<float>(scale), format, error});
}

void sum_from_blocks(std::byte* destination, std::span<const std::byte* const> messages,
                     std::size_t bytes, std::size_t count, WireFormat wire) {
  const BlockFormat& format = checked_format(bytes, count, wire);
  if (messages.empty()) throw InvalidArgument("a sum needs at least one message");
  HWY_DYNAMIC_DISPATCH(sum_here)
  ({reinterpret_cast<float*>(destination), messages.data(), messages.size(), false, count, format});
}

void accumulate_blocks(std::byte* destination, std::span<const std::byte> message,
                       std::size_t count, WireFormat wire) {
  const BlockFormat& format = checked_format(message.size(), count, wire);
  const std::byte* const first = message.data();
  HWY_DYNAMIC_DISPATCH(sum_here)
  ({reinterpret_cast<float*>(destination), &first, 1, true, count, format});
}

}  // namespace chainmail::ops
#endif  // HWY_ONCE
