// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/kernels/cpu/reference.h"
#include "tests/ops/kernels/cpu/targets.h"

namespace chainmail::ops {
namespace {

constexpr WireFormat kWires[] = {WireFormat::kFloat16, WireFormat::kBFloat16};
constexpr float kLargest = std::numeric_limits<float>::max();

const reference::Half& format_of(WireFormat wire) {
  return wire == WireFormat::kFloat16 ? reference::kHalf16 : reference::kBrain16;
}

template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// What arrives of `values` times `scale`.
std::vector<float> over_the_wire(std::vector<float> values, float scale, WireFormat wire,
                                 bool* has_nonfinite = nullptr) {
  std::vector<std::byte> message(wire_size(values.size()) + 1, std::byte{0x5a});
  const bool flag =
      round_to_wire(message.data(), bytes(values), values.size(), double{scale}, wire);
  if (has_nonfinite != nullptr) *has_nonfinite = flag;
  EXPECT_EQ(message.back(), std::byte{0x5a}) << "written past the end";
  widen_from_wire(bytes(values), message.data(), values.size(), wire);
  return values;
}

void expect_rounded(const std::vector<float>& values, float scale, WireFormat wire) {
  std::vector<float> products = values;
  for (float& product : products) product *= scale;
  const auto want = reference::over_the_wire(format_of(wire), products);
  bool has_nonfinite = false;
  const auto got = over_the_wire(values, scale, wire, &has_nonfinite);
  bool expected_flag = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected_flag |= !std::isfinite(products[i]);
    if (std::isnan(products[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
          << to_string(wire) << " of " << values[i] << " * " << scale << ": " << got[i];
    }
  }
  ASSERT_EQ(has_nonfinite, expected_flag);
}

TEST(WireTest, MessagesHaveAByteForEveryBlock) {
  EXPECT_EQ(wire_size(0), 0U);
  EXPECT_EQ(wire_size(1), 3U);
  EXPECT_EQ(wire_size(256), 513U);
  EXPECT_EQ(wire_size(257), 516U);
  for (std::size_t size = 0; size < 3000; ++size) {
    const std::size_t most = wire_capacity(size);
    EXPECT_LE(wire_size(most), size);
    EXPECT_TRUE(most < kWireBlock || most % kWireBlock == 0) << size;
    EXPECT_GT(wire_size(most < kWireBlock ? most + 1 : most + kWireBlock), size);
  }
}

TEST(WireTest, EveryHalfIsWidenedExactly) {
  for_each_target([] {
    for (const auto wire : kWires) {
      for (const int shift : {0, 20, 126, -1, -20, -113}) {
        std::vector<std::byte> message(wire_size(65536), static_cast<std::byte>(shift));
        for (std::size_t i = 0; i < 65536; ++i) {
          reference::write(message.data() + 2 * i, static_cast<std::uint16_t>(i));
        }
        std::vector<float> floats(65536);
        widen_from_wire(bytes(floats), message.data(), floats.size(), wire);
        for (std::size_t i = 0; i < floats.size(); ++i) {
          const double half = reference::decode(format_of(wire), static_cast<std::uint16_t>(i));
          double expected = std::ldexp(half, -shift);
          if (std::isfinite(half)) expected = std::clamp<double>(expected, -kLargest, kLargest);
          ASSERT_EQ(std::isnan(floats[i]), std::isnan(expected)) << std::hex << i;
          if (std::isnan(expected)) continue;
          ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]),
                    std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
              << to_string(wire) << " " << std::hex << i << " shift " << std::dec << shift;
        }
      }
    }
  });
}

TEST(WireTest, RoundsToNearestEvenForEveryExponentAndTie) {
  for_each_target([] {
    // Every upper half of a float with lower halves around the ties of both formats: alone in a
    // block, and in blocks of what is next to it.
    std::vector<float> values;
    for (std::uint32_t upper = 0; upper < 65536; ++upper) {
      for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu,
                                        0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        values.push_back(std::bit_cast<float>((upper << 16) | lower));
      }
    }
    for (const auto wire : kWires) {
      ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f, wire));
      for (std::size_t i = 0; i < values.size(); i += 17) {
        ASSERT_NO_FATAL_FAILURE(expect_rounded({values[i]}, 1.0f, wire));
      }
    }
  });
}

TEST(WireTest, EverySmallCountIsRoundedWithItsScale) {
  for_each_target([] {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0f, 100.0f);
    for (const auto wire : kWires) {
      for (std::size_t count = 0; count <= 600; count += count < 70 ? 1 : 53) {
        std::vector<float> values(count);
        for (float& value : values) value = normal(random);
        ASSERT_NO_FATAL_FAILURE(expect_rounded(values, 1.0f / 3.0f, wire));
      }
    }
  });
}

// What has always been rounded well keeps its bits: normal halves in blocks whose largest is one.
TEST(WireTest, NormalHalvesHaveTheBitsOfPlainRounding) {
  for_each_target([] {
    for (const auto wire : kWires) {
      const bool is_float16 = wire == WireFormat::kFloat16;
      const float least = is_float16 ? 0x1p-14f : 0x1p-126f;
      const float most = is_float16 ? 65519.0f : 3.389e38f;
      std::mt19937 random(9);
      std::uniform_real_distribution<float> exponent(std::log2(least), std::log2(most));
      std::vector<float> values(100'000);
      for (float& value : values) {
        value = std::clamp(std::exp2(exponent(random)), least, most);
        if (random() % 2 == 0) value = -value;
        if (random() % 50 == 0) value = 0;
      }
      values[3] = most;
      values[4] = least;
      const auto got = over_the_wire(values, 1.0f, wire);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto& format = format_of(wire);
        const auto plain = static_cast<float>(
            reference::decode(format, reference::encode(format, double{values[i]})));
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(plain))
            << values[i];
      }
    }
  });
}

// Whatever float32 holds arrives with the precision of the format, alone or among its like.
TEST(WireTest, NothingFiniteOverflowsOrVanishes) {
  for_each_target([] {
    for (const auto wire : kWires) {
      const double unit = wire == WireFormat::kFloat16 ? 0x1p-11 : 0x1p-8;
      for (const float value : {70000.0f, 1e-7f, 3e-8f, 3e38f, kLargest, 1e-38f, 0x1p-126f, 1e-40f,
                                0x1p-149f, 65520.0f, 3.39e38f}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{300}}) {
          std::vector<float> values(count, value);
          for (std::size_t i = 0; i < count; i += 3) values[i] = -value;
          bool has_nonfinite = true;
          const auto got = over_the_wire(values, 1.0f, wire, &has_nonfinite);
          EXPECT_FALSE(has_nonfinite) << value;
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_LE(std::fabs(double{got[i]} - double{values[i]}),
                      unit * std::fabs(double{values[i]}))
                << value << " became " << got[i];
          }
        }
      }
    }
  });
}

// The bound that the documentation gives for a block of everything.
TEST(WireTest, BesideTheLargestOfABlockTheErrorStaysBelow2ToTheMinus40OfIt) {
  for_each_target([] {
    std::mt19937 random(12);
    std::uniform_int_distribution<std::uint32_t> finite(0, 0x7f7fffff);
    for (const auto wire : kWires) {
      const bool is_float16 = wire == WireFormat::kFloat16;
      for (int round = 0; round < 200; ++round) {
        std::vector<float> values(kWireBlock);
        float largest = 0;
        for (float& value : values) {
          value = std::bit_cast<float>(finite(random));
          largest = std::max(largest, value);
        }
        const auto got = over_the_wire(values, 1.0f, wire);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double relative = values[i] * (is_float16 ? 0x1p-11 : 0x1p-8);
          const double steps = std::ldexp(double{largest}, is_float16 ? -39 : -260);
          ASSERT_LE(std::fabs(double{got[i]} - double{values[i]}), std::max(relative, steps));
        }
      }
    }
  });
}

TEST(WireTest, OnlyInfinityAndNanAreFlaggedAndLeaveTheirNeighboursAlone) {
  for_each_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto wire : kWires) {
      for (const float bad : {infinity, -infinity, std::nanf("")}) {
        for (std::size_t place = 0; place < 290; place += place < 40 ? 1 : 25) {
          std::vector<float> values(300, 1e-7f);
          values[place] = bad;
          bool has_nonfinite = false;
          const auto got = over_the_wire(values, 1.0f, wire, &has_nonfinite);
          ASSERT_TRUE(has_nonfinite) << bad << " at " << place;
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (i != place) {
              ASSERT_NEAR(got[i], 1e-7f, 1e-9f) << "beside " << bad;
            } else if (std::isnan(bad)) {
              ASSERT_TRUE(std::isnan(got[i]));
            } else {
              ASSERT_EQ(got[i], bad);
            }
          }
        }
      }
    }
  });
}

TEST(WireTest, MessagesAreAddedInFloat32InTheirOrder) {
  for_each_target([] {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (const auto wire : kWires) {
      for (std::size_t count = 0; count <= 600; count += count < 70 ? 1 : 53) {
        std::vector<float> want(count);
        std::vector<std::vector<std::byte>> messages;
        std::vector<const std::byte*> pointers;
        for (int m = 0; m < 4; ++m) {
          std::vector<float> values(count);
          // Each with a factor of its own.
          for (float& value : values) value = std::ldexp(normal(random), 10 * m);
          messages.emplace_back(wire_size(count));
          ASSERT_FALSE(round_to_wire(messages.back().data(), bytes(values), count, 1.0, wire));
          const auto terms = reference::over_the_wire(format_of(wire), values);
          for (std::size_t i = 0; i < count; ++i) want[i] = m == 0 ? terms[i] : want[i] + terms[i];
        }
        for (const auto& message : messages) pointers.push_back(message.data());
        std::vector<float> sums(count);
        sum_from_wire(bytes(sums), pointers, count, wire);
        ASSERT_EQ(sums, want);
      }
    }
  });
}

TEST(WireTest, AMeanOfTheLargestFloatsIsFiniteAndASumOfThemIsNot) {
  for_each_target([] {
    for (const auto wire : kWires) {
      for (const std::size_t ranks : {2U, 3U, 5U}) {
        std::vector<float> values(300, kLargest);
        std::vector<std::byte> share(wire_size(values.size()));
        ASSERT_FALSE(round_to_wire(share.data(), bytes(values), values.size(),
                                   1.0 / static_cast<double>(ranks), wire));
        const std::vector<const std::byte*> shares(ranks, share.data());
        std::vector<float> mean(values.size());
        sum_from_wire(bytes(mean), shares, mean.size(), wire, true);
        std::vector<std::byte> whole(wire_size(values.size()));
        ASSERT_FALSE(round_to_wire(whole.data(), bytes(values), values.size(), 1.0, wire));
        const std::vector<const std::byte*> wholes(ranks, whole.data());
        std::vector<float> sum(values.size());
        sum_from_wire(bytes(sum), wholes, sum.size(), wire);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(mean[i] / kLargest, 1.0f, wire == WireFormat::kFloat16 ? 0x1p-11 : 0x1p-8);
          ASSERT_TRUE(std::isinf(sum[i]));
        }
      }
    }
  });
}

// What the owner of an element does with the contributions of 1,024 ranks to a mean: each is scaled
// before it is rounded, sums are float32, the result is rounded once more.
TEST(WireTest, TheMeanOfGradientsOf100Over1024RanksNeitherOverflowsNorDrifts) {
  constexpr std::size_t kRanks = 1024;
  constexpr std::size_t kCount = 257;
  for_each_target([] {
    std::mt19937 random(11);
    std::uniform_real_distribution<float> near(90.0F, 100.0F);
    std::vector<double> exact(kCount);
    std::vector<std::vector<std::byte>> messages;
    std::vector<const std::byte*> pointers;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      std::vector<float> gradients(kCount, 100.0F);
      for (std::size_t i = 1; i < kCount; ++i) gradients[i] = near(random);
      for (std::size_t i = 0; i < kCount; ++i) exact[i] += double{gradients[i]} / kRanks;
      messages.emplace_back(wire_size(kCount));
      ASSERT_FALSE(round_to_wire(messages.back().data(), bytes(gradients), kCount, 1.0 / kRanks,
                                 WireFormat::kFloat16));
    }
    for (const auto& message : messages) pointers.push_back(message.data());
    std::vector<float> sums(kCount);
    sum_from_wire(bytes(sums), pointers, kCount, WireFormat::kFloat16, true);
    sums = over_the_wire(sums, 1.0F, WireFormat::kFloat16);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sums[i], exact[i], 1.1e-3 * 100.0) << i;
  });
}

TEST(WireTest, TheNativeFormatRoundsNothing) {
  std::byte data[16] = {};
  EXPECT_THROW((void)round_to_wire(data, data + 8, 1, 1.0, WireFormat::kNative), InvalidArgument);
  EXPECT_THROW(widen_from_wire(data, data + 8, 1, WireFormat::kNative), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
