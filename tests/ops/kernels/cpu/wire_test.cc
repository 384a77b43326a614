// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "tests/ops/kernels/cpu/reference.h"
#include "tests/ops/kernels/cpu/targets.h"

namespace chainmail::ops {
namespace {

constexpr WireFormat kWires[] = {WireFormat::kFloat16, WireFormat::kBFloat16};

DataType half_type(WireFormat wire) {
  return wire == WireFormat::kFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
}

template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

template <typename T>
constexpr DataType kTypeOf = sizeof(T) == 4 ? DataType::kFloat32 : DataType::kFloat64;

template <typename T>
void expect_rounded(std::vector<T> values, T scale, WireFormat wire) {
  const auto& format = reference::format_of(half_type(wire));
  std::vector<std::uint16_t> halves(values.size());
  const bool flag = round_to_wire(bytes(halves), bytes(values), values.size(), kTypeOf<T>,
                                  static_cast<double>(scale), wire);
  bool expected_flag = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t expected =
        reference::encode(format, static_cast<double>(static_cast<T>(values[i] * scale)));
    const double got = reference::decode(format, halves[i]);
    expected_flag |= !std::isfinite(reference::decode(format, expected));
    if (std::isnan(values[i] * scale)) {
      ASSERT_TRUE(std::isnan(got)) << "element " << i;
    } else {
      ASSERT_EQ(halves[i], expected) << to_string(wire) << " of " << values[i] << " * " << scale;
    }
  }
  ASSERT_EQ(flag, expected_flag);
}

TEST(WireTest, EveryHalfIsWidenedExactly) {
  for_each_target([] {
    for (const auto wire : kWires) {
      const auto& format = reference::format_of(half_type(wire));
      std::vector<std::uint16_t> halves(65536);
      for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
      std::vector<float> floats(halves.size());
      std::vector<double> doubles(halves.size());
      widen_from_wire(bytes(floats), bytes(halves), halves.size(), DataType::kFloat32, wire);
      widen_from_wire(bytes(doubles), bytes(halves), halves.size(), DataType::kFloat64, wire);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const double expected = reference::decode(format, halves[i]);
        ASSERT_EQ(std::isnan(floats[i]), std::isnan(expected)) << std::hex << i;
        ASSERT_EQ(std::isnan(doubles[i]), std::isnan(expected)) << std::hex << i;
        if (std::isnan(expected)) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]),
                  std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
            << to_string(wire) << " " << std::hex << i;
        ASSERT_EQ(doubles[i], expected) << std::hex << i;
      }
    }
  });
}

TEST(WireTest, RoundsToNearestEvenForEveryExponentAndTie) {
  for_each_target([] {
    // Every upper half of a float with lower halves around the ties of both formats.
    std::vector<float> values;
    for (std::uint32_t upper = 0; upper < 65536; ++upper) {
      for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu,
                                        0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        values.push_back(std::bit_cast<float>((upper << 16) | lower));
      }
    }
    for (const auto wire : kWires) ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f, wire));
  });
}

TEST(WireTest, EverySmallCountIsRoundedWithItsScale) {
  for_each_target([] {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0f, 100.0f);
    for (const auto wire : kWires) {
      for (std::size_t count = 0; count <= 70; ++count) {
        std::vector<float> values(count);
        for (float& value : values) value = normal(random);
        ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f / 3.0f, wire));
        ASSERT_NO_FATAL_FAILURE(
            expect_rounded(std::vector<double>(values.begin(), values.end()), 1.0 / 3.0, wire));
      }
    }
  });
}

TEST(WireTest, LongOnesGoInStreams) {
  for_each_target([] {
    std::mt19937 random(8);
    std::normal_distribution<float> normal(0.0f, 100.0f);
    for (const auto wire : kWires) {
      std::vector<float> values(12345);
      for (float& value : values) value = normal(random);
      ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f / 3.0f, wire));
      values[5000] = std::numeric_limits<float>::infinity();
      ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f, wire));

      const auto& format = reference::format_of(half_type(wire));
      std::vector<std::uint16_t> halves(values.size());
      for (auto& half : halves) half = reference::encode(format, normal(random));
      std::vector<float> sums(values.size(), 0.25f);
      std::vector<float> widened(values.size());
      accumulate_from_wire(bytes(sums), bytes(halves), halves.size(), DataType::kFloat32, wire);
      widen_from_wire(bytes(widened), bytes(halves), halves.size(), DataType::kFloat32, wire);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const auto half = static_cast<float>(reference::decode(format, halves[i]));
        ASSERT_EQ(widened[i], half) << i;
        ASSERT_EQ(sums[i], 0.25f + half) << i;
      }
    }
  });
}

TEST(WireTest, DoublesAreRoundedOnceNotThroughFloat) {
  for (const auto wire : kWires) {
    const auto& format = reference::format_of(half_type(wire));
    std::vector<double> values;
    std::mt19937_64 random(6);
    for (int bits = 0; bits < 0x7c00; bits += 7) {
      // Just above and below a tie by less than float32 can tell.
      const double low = reference::decode(format, static_cast<std::uint16_t>(bits));
      const double high = reference::decode(format, static_cast<std::uint16_t>(bits + 1));
      const double tie = low + (high - low) / 2;
      for (const double value : {tie, std::nextafter(tie, 1e300), std::nextafter(tie, -1e300)}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<double>(random()));
    values.push_back(std::numeric_limits<double>::max());
    ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0, wire));
  }
}

TEST(WireTest, OverflowInfinityAndNanAreFlaggedWhereverTheyAre) {
  for_each_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto wire : kWires) {
      const float overflow = wire == WireFormat::kFloat16 ? 65520.0f : 3.4e38f;
      for (const float bad : {overflow, -overflow, infinity, -infinity, std::nanf("")}) {
        for (std::size_t place = 0; place < 37; ++place) {
          std::vector<float> values(37, 1.5f);
          values[place] = bad;
          std::vector<std::uint16_t> halves(values.size());
          ASSERT_TRUE(round_to_wire(bytes(halves), bytes(values), values.size(), DataType::kFloat32,
                                    1.0, wire))
              << bad << " at " << place;
        }
      }
      std::vector<float> fine(37, 65519.0f);
      std::vector<std::uint16_t> halves(fine.size());
      EXPECT_FALSE(
          round_to_wire(bytes(halves), bytes(fine), fine.size(), DataType::kFloat32, 1.0, wire));
    }
  });
}

TEST(WireTest, HalvesAreAddedInFullPrecision) {
  for_each_target([] {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (const auto wire : kWires) {
      const auto& format = reference::format_of(half_type(wire));
      for (std::size_t count = 0; count <= 70; ++count) {
        std::vector<float> sums(count);
        std::vector<std::uint16_t> halves(count);
        for (float& sum : sums) sum = normal(random);
        for (auto& half : halves) half = reference::encode(format, normal(random));
        std::vector<double> wide(sums.begin(), sums.end());
        const std::vector<float> before = sums;
        accumulate_from_wire(bytes(sums), bytes(halves), count, DataType::kFloat32, wire);
        accumulate_from_wire(bytes(wide), bytes(halves), count, DataType::kFloat64, wire);
        for (std::size_t i = 0; i < count; ++i) {
          const double half = reference::decode(format, halves[i]);
          ASSERT_EQ(sums[i], before[i] + static_cast<float>(half));
          ASSERT_EQ(wide[i], static_cast<double>(before[i]) + half);
        }
      }
    }
  });
}

// What the owner of an element does with the contributions of 1,024 ranks to a mean: each is scaled
// before it is rounded, sums are float32, the result is rounded once more.
TEST(WireTest, TheMeanOfGradientsOf100Over1024RanksNeitherOverflowsNorDrifts) {
  constexpr int kRanks = 1024;
  constexpr std::size_t kCount = 257;
  for_each_target([] {
    std::mt19937 random(11);
    std::uniform_real_distribution<float> near(90.0F, 100.0F);
    std::vector<float> sums(kCount);
    std::vector<double> exact(kCount);
    std::vector<std::uint16_t> halves(kCount);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<float> gradients(kCount, 100.0F);
      for (std::size_t i = 1; i < kCount; ++i) gradients[i] = near(random);
      for (std::size_t i = 0; i < kCount; ++i) exact[i] += double{gradients[i]} / kRanks;
      ASSERT_FALSE(round_to_wire(bytes(halves), bytes(gradients), kCount, DataType::kFloat32,
                                 1.0 / kRanks, WireFormat::kFloat16));
      accumulate_from_wire(bytes(sums), bytes(halves), kCount, DataType::kFloat32,
                           WireFormat::kFloat16);
    }
    ASSERT_FALSE(round_to_wire(bytes(halves), bytes(sums), kCount, DataType::kFloat32, 1.0,
                               WireFormat::kFloat16));
    widen_from_wire(bytes(sums), bytes(halves), kCount, DataType::kFloat32, WireFormat::kFloat16);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sums[i], exact[i], 1.1e-3 * 100.0) << i;
  });
}

TEST(WireTest, WhatHasNoWireFormatIsRefused) {
  std::byte data[16] = {};
  EXPECT_THROW((void)round_to_wire(data, data, 1, DataType::kInt32, 1.0, WireFormat::kFloat16),
               InvalidArgument);
  EXPECT_THROW(widen_from_wire(data, data + 8, 1, DataType::kFloat32, WireFormat::kNative),
               InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
