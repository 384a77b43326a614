// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The integer wire as it is defined (ops/kernels/block_wire.h), element by element.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "ops/kernels/block_wire.h"

namespace chainmail::ops {

inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(bits_of(value));
  return bits;
}

/// What encoding makes of values and residuals.
struct Encoded {
  std::vector<std::byte> message;
  std::vector<float> residual;
  bool has_nonfinite = false;
};

/// Of block number `block`.
inline float scale_of(std::span<const std::byte> message, std::size_t block) {
  std::uint16_t bits;
  std::memcpy(&bits, message.data() + 2 * block, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// An empty `residual`: without feedback.
inline Encoded encode_by_definition(const std::vector<float>& values,
                                    const std::vector<float>& residual, float factor,
                                    WireFormat wire) {
  const BlockFormat& format = block_format(wire);
  Encoded result{std::vector<std::byte>(format.size(values.size())), residual};
  std::byte* codes = result.message.data() + 2 * format.scales(values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += format.block) {
    const std::size_t end = std::min(values.size(), begin + format.block);
    std::vector<float> y;
    std::uint32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const volatile float product = values[i] * factor;  // never fused with the sum
      y.push_back(residual.empty() ? product : product + residual[i]);
      largest = std::max(largest, bits_of(y.back()) & 0x7fffffffU);
    }
    std::uint16_t scale_bits = 0;
    if (largest >= bits_of(std::numeric_limits<float>::infinity())) {
      scale_bits = 0x7fc0;
      result.has_nonfinite = true;
    } else if (std::bit_cast<float>(largest) < 0x1p-100F) {
      for (std::size_t i = begin; i < end && !residual.empty(); ++i) {
        result.residual[i] = y[i - begin];
      }
    } else {
      const float magnitude = std::bit_cast<float>(largest);
      const auto most = static_cast<float>(format.most);
      const float exact = magnitude / most;
      auto bits = static_cast<std::uint16_t>(bits_of(exact) >> 16U);
      if (bits_of(exact) % 65536 != 0) ++bits;
      float scale = std::bit_cast<float>(std::uint32_t{bits} << 16U);
      float inverse = 1.0F / scale;
      if (std::isinf(most * scale)) {
        scale = std::bit_cast<float>(std::uint32_t{--bits} << 16U);
        inverse = most / magnitude;
      }
      scale_bits = bits;
      for (std::size_t i = begin; i < end; ++i) {
        const volatile float units = y[i - begin] * inverse;
        const int code = static_cast<int>(std::nearbyint(units));  // to even, and 0 has no sign
        EXPECT_LE(std::abs(code), format.most);
        const auto byte = static_cast<std::byte>(code);
        if (wire == WireFormat::kInt8) {
          codes[i] = byte;
        } else {
          codes[i / 2] |= i % 2 == 0 ? byte & std::byte{0xf} : byte << 4;
        }
        const volatile float sent = static_cast<float>(code) * scale;
        if (!residual.empty()) result.residual[i] = y[i - begin] - sent;
      }
    }
    std::memcpy(result.message.data() + begin / format.block * 2, &scale_bits, 2);
  }
  return result;
}

inline std::vector<float> decode_by_definition(std::span<const std::byte> message,
                                               std::size_t count, WireFormat wire) {
  const BlockFormat& format = block_format(wire);
  std::vector<float> values(count);
  const std::byte* const codes = message.data() + 2 * format.scales(count);
  for (std::size_t i = 0; i < count; ++i) {
    int code = static_cast<std::int8_t>(codes[wire == WireFormat::kInt8 ? i : i / 2]);
    if (wire == WireFormat::kInt4) {
      code = (code >> (i % 2 * 4)) & 0xf;
      if (code > 7) code -= 16;
    }
    const float scale = scale_of(message, i / format.block);
    values[i] = std::isfinite(scale) ? static_cast<float>(code) * scale
                                     : std::bit_cast<float>(std::uint32_t{0x7fc00000});
  }
  return values;
}

}  // namespace chainmail::ops
