// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The integer wire's arithmetic, with every instruction set of this machine. "--full": 10^7 values
// and 10^6 messages instead of some hundred thousand and some thousand.

#include "ops/kernels/cpu/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/kernels/block_wire.h"
#include "ops/kernels/cpu/kernels.h"
#include "tests/ops/kernels/cpu/blocks_reference.h"
#include "tests/ops/kernels/cpu/targets.h"

namespace chainmail::ops {
namespace {

bool is_full = false;

constexpr WireFormat kWires[] = {WireFormat::kInt8, WireFormat::kInt4};
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Encoded encode(const std::vector<float>& values, const std::vector<float>& residual, float factor,
               WireFormat wire) {
  Encoded result{std::vector<std::byte>(message_size(values.size(), wire) + 1, std::byte{0x5a}),
                 residual};
  const std::span<std::byte> message(result.message.data(), result.message.size() - 1);
  result.has_nonfinite = encode_blocks(
      message, reinterpret_cast<const std::byte*>(values.data()),
      residual.empty() ? nullptr : reinterpret_cast<std::byte*>(result.residual.data()),
      values.size(), double{factor}, wire);
  EXPECT_EQ(result.message.back(), std::byte{0x5a}) << "written past the end";
  result.message.pop_back();
  return result;
}

std::vector<float> decode(std::span<const std::byte> message, std::size_t count, WireFormat wire) {
  std::vector<float> values(count);
  decode_blocks(reinterpret_cast<std::byte*>(values.data()), message, count, wire);
  return values;
}

/// Blocks whose largest has any exponent, of all kinds of values; some are not finite.
std::vector<float> all_kinds(std::size_t count, unsigned seed, bool has_nonfinite = true) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (std::size_t begin = 0; begin < count; begin += 64) {
    const int top = static_cast<int>((begin / 64) % 277) - 149;  // each exponent in its turn
    for (std::size_t i = begin; i < std::min(count, begin + 64); ++i) {
      const auto draw = static_cast<std::uint32_t>(random());
      float value = std::ldexp(1.0F + static_cast<float>(draw >> 9U) * 0x1p-23F,
                               top - static_cast<int>(draw % 9));
      if (draw % 50 == 0) value = std::bit_cast<float>(draw >> 9U);  // subnormal
      if (draw % 53 == 0) value = 0.0F;
      if (has_nonfinite && random() % 40000 == 0) value = draw % 2 == 0 ? kInfinity : NAN;
      values[i] = random() % 2 == 0 ? value : -value;
    }
  }
  return values;
}

void expect_the_same(const Encoded& got, const Encoded& want) {
  ASSERT_EQ(got.message, want.message);
  ASSERT_EQ(bits_of(got.residual), bits_of(want.residual));
  ASSERT_EQ(got.has_nonfinite, want.has_nonfinite);
}

TEST(BlocksTest, AMessageIsScalesAndCodes) {
  static_assert(kBlocksInt8.size(0) == 0 && kBlocksInt4.size(0) == 0);
  static_assert(kBlocksInt8.size(256) == 258 && kBlocksInt8.size(257) == 261);
  static_assert(kBlocksInt4.size(64) == 34 && kBlocksInt4.size(65) == 37);
  static_assert(kBlocksInt4.size(67) == 38);
  for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16, WireFormat::kBFloat16,
                                WireFormat::kInt8, WireFormat::kInt4}) {
    for (std::size_t bytes = 0; bytes < 3000; ++bytes) {
      const std::size_t most = message_capacity(bytes, wire);
      ASSERT_LE(message_size(most, wire), bytes);
      const bool is_whole = wire == WireFormat::kNative || most < kWireBlock;
      ASSERT_TRUE(is_whole || most % kWireBlock == 0) << bytes;
      ASSERT_GT(message_size(is_whole ? most + 1 : most + kWireBlock, wire), bytes);
    }
  }
}

// What the format's definition says, by hand: 127 * 0.5 is the largest, so that the scale is 0.5.
TEST(BlocksTest, AnExampleByHand) {
  for_each_target([] {
    const std::vector<float> values = {63.5F, -1.0F, 0.75F, 0.25F, -0.25F, 0.26F};
    const Encoded encoded = encode(values, std::vector<float>(6, 0.0F), 1.0F, WireFormat::kInt8);
    EXPECT_EQ(scale_of(encoded.message, 0), 0.5F);
    const auto code = [&](std::size_t i) {
      return static_cast<std::int8_t>(encoded.message[2 + i]);
    };
    EXPECT_EQ(code(0), 127);
    EXPECT_EQ(code(1), -2);
    EXPECT_EQ(code(2), 2);  // 1.5, to even
    EXPECT_EQ(code(3), 0);  // 0.5, to even
    EXPECT_EQ(code(4), 0);
    EXPECT_EQ(code(5), 1);
    EXPECT_EQ(encoded.residual, (std::vector<float>{0, 0, -0.25F, 0.25F, -0.25F, 0.26F - 0.5F}));
    const Encoded halves = encode({7.0F, -2.0F, 3.4F}, {}, 1.0F, WireFormat::kInt4);
    const std::vector<std::byte> want = {std::byte{0x80}, std::byte{0x3f}, std::byte{0xe7},
                                         std::byte{0x03}};
    EXPECT_EQ(halves.message, want);
  });
}

TEST(BlocksTest, EveryInstructionSetHasTheBitsOfTheDefinition) {
  const std::size_t count = is_full ? 10'000'000 : 200'000;
  for (const WireFormat wire : kWires) {
    const std::vector<float> values = all_kinds(count + 77, 1);
    const std::vector<float> residual = all_kinds(count + 77, 2, false);
    for (const bool has_feedback : {true, false}) {
      const auto kept = has_feedback ? residual : std::vector<float>{};
      const Encoded want = encode_by_definition(values, kept, 1.0F / 3.0F, wire);
      ASSERT_TRUE(want.has_nonfinite);
      const auto decoded = decode_by_definition(want.message, values.size(), wire);
      for_each_target([&] {
        ASSERT_NO_FATAL_FAILURE(expect_the_same(encode(values, kept, 1.0F / 3.0F, wire), want));
        ASSERT_EQ(bits_of(decode(want.message, values.size(), wire)), bits_of(decoded));
      });
    }
  }
}

TEST(BlocksTest, EverySmallCountHasTheBitsOfTheDefinition) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      for (std::size_t count = 0; count <= 600; count += count < 140 ? 1 : 23) {
        std::mt19937 random(static_cast<unsigned>(count));
        std::normal_distribution<float> normal(0.0F, 3.0F);
        std::vector<float> values(count);
        std::vector<float> residual(count);
        for (float& value : values) value = normal(random);
        for (float& value : residual) value = normal(random) * 0.01F;
        const Encoded want = encode_by_definition(values, residual, 0.25F, wire);
        ASSERT_NO_FATAL_FAILURE(expect_the_same(encode(values, residual, 0.25F, wire), want));
        ASSERT_EQ(bits_of(decode(want.message, count, wire)),
                  bits_of(decode_by_definition(want.message, count, wire)));
      }
    }
  });
}

TEST(BlocksTest, ElementsNeedNoAlignment) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      const std::vector<float> values = all_kinds(700, 3, false);
      const Encoded want = encode(values, values, 1.0F, wire);
      const std::size_t bytes = values.size() * sizeof(float);
      std::vector<std::byte> source(bytes + 1);
      std::vector<std::byte> residual(bytes + 3);
      std::memcpy(source.data() + 1, values.data(), bytes);
      std::memcpy(residual.data() + 3, values.data(), bytes);
      std::vector<std::byte> message(want.message.size() + 1);
      const std::span<std::byte> odd(message.data() + 1, want.message.size());
      EXPECT_FALSE(encode_blocks(odd, source.data() + 1, residual.data() + 3, 700, 1.0, wire));
      EXPECT_EQ(std::memcmp(odd.data(), want.message.data(), odd.size()), 0);
      EXPECT_EQ(std::memcmp(residual.data() + 3, want.residual.data(), bytes), 0);
      decode_blocks(source.data() + 1, odd, 700, wire);
      EXPECT_EQ(std::memcmp(source.data() + 1, decode(want.message, 700, wire).data(), bytes), 0);
    }
  });
}

TEST(BlocksTest, NothingIsLostAndNothingIsFurtherThanHalfAScale) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      for (const std::size_t count : {1U, 63U, 64U, 65U, 255U, 256U, 257U, 100'003U}) {
        std::mt19937 random(static_cast<unsigned>(count));
        std::normal_distribution<float> normal(0.0F, 1e-3F);
        std::vector<float> values(count);
        std::vector<float> residual(count);
        for (float& value : values) value = normal(random);
        for (float& value : residual) value = normal(random) * 0.01F;
        const Encoded encoded = encode(values, residual, 0.5F, wire);
        const auto decoded = decode(encoded.message, count, wire);
        for (std::size_t i = 0; i < count; ++i) {
          const float y = values[i] * 0.5F + residual[i];
          const double scale = scale_of(encoded.message, i / block_format(wire).block);
          ASSERT_LE(std::fabs(double{y} - double{decoded[i]}), scale * 0.5 * (1 + 0x1p-20));
          ASSERT_EQ(decoded[i] + encoded.residual[i], y) << "lost at " << i;
        }
      }
    }
  });
}

TEST(BlocksTest, ABlockThatIsNotFiniteIsFlaggedAndKeepsItsResidual) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      const std::size_t block = block_format(wire).block;
      const std::size_t count = 4 * block + 5;
      for (const float bad : {kInfinity, -kInfinity, NAN}) {
        for (const std::size_t place :
             {std::size_t{0}, block - 1, block, 3 * block + 1, count - 1}) {
          std::vector<float> values(count, 1.5F);
          const std::vector<float> residual(count, 0.125F);
          values[place] = bad;
          const Encoded encoded = encode(values, residual, 1.0F, wire);
          ASSERT_TRUE(encoded.has_nonfinite);
          const auto decoded = decode(encoded.message, count, wire);
          for (std::size_t i = 0; i < count; ++i) {
            if (i / block == place / block) {
              ASSERT_EQ(bits_of(decoded[i]), 0x7fc00000U);
              ASSERT_EQ(bits_of(encoded.residual[i]), bits_of(0.125F)) << i;
            } else {
              ASSERT_NEAR(decoded[i], 1.625F, 1.625 / block_format(wire).most);
              ASSERT_EQ(decoded[i] + encoded.residual[i], 1.625F);
            }
          }
        }
      }
    }
  });
}

TEST(BlocksTest, TheLargestFloatsStayFinite) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      for (const float largest : {kLargest, kLargest * 0.9999F, kLargest * 0.993F, 3.39e38F}) {
        const std::vector<float> values = {largest, -largest, largest / 2, 1.0F};
        const Encoded encoded = encode(values, std::vector<float>(4, 0.0F), 1.0F, wire);
        EXPECT_FALSE(encoded.has_nonfinite);
        const auto decoded = decode(encoded.message, 4, wire);
        const float scale = scale_of(encoded.message, 0);
        for (std::size_t i = 0; i < 4; ++i) {
          ASSERT_TRUE(std::isfinite(decoded[i]));
          ASSERT_LE(std::fabs(decoded[i] - values[i]), scale * 1.01F);
          ASSERT_EQ(encoded.residual[i], values[i] - decoded[i]);
        }
      }
    }
  });
}

// One gradient and then none: what is owed shrinks with every message. Without an end to that the
// inverse of the scale becomes infinite, and infinity times the zeros beside it NaN.
TEST(BlocksTest, WhatABlockOwesIsPaidAndNeverBecomesNan) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> gradient(512);
  for (std::size_t i = 0; i < gradient.size(); i += 2) gradient[i] = normal(random);
  const std::vector<float> none(gradient.size(), 0.0F);
  for_each_target([&] {
    for (const WireFormat wire : kWires) {
      std::vector<float> sum(gradient.size(), 0.0F);
      std::vector<float> residual(gradient.size(), 0.0F);
      for (int step = 0; step < 10'000; ++step) {
        const Encoded encoded = encode(step == 0 ? gradient : none, residual, 1.0F, wire);
        ASSERT_FALSE(encoded.has_nonfinite) << "in step " << step;
        residual = encoded.residual;
        const auto decoded = decode(encoded.message, gradient.size(), wire);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        ASSERT_LT(std::fabs(residual[i]), 0x1p-100F) << to_string(wire);
        ASSERT_NEAR(sum[i], gradient[i], 1e-6F * std::fabs(gradient[i])) << to_string(wire);
      }
    }
  });
}

// The rule without that end, to see that the test above can fail.
TEST(BlocksTest, TheNaiveRuleBecomesNan) {
  std::vector<float> residual = {1.0F, 0.3F, 0.0F, -0.7F};
  bool is_nan = false;
  for (int step = 0; step < 100 && !is_nan; ++step) {
    float largest = 0;
    for (const float value : residual) largest = std::max(largest, std::fabs(value));
    const float exact = largest / 127.0F;
    const float scale = std::bit_cast<float>((bits_of(exact) + 0xffffU) & 0xffff0000U);
    const volatile float inverse = 1.0F / scale;
    for (float& value : residual) {
      value -= std::nearbyint(value * inverse) * scale;
      is_nan |= std::isnan(value);
    }
  }
  EXPECT_TRUE(is_nan);
}

TEST(BlocksTest, MessagesAreAddedInFloat32InTheirOrder) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 255U, 256U, 257U, 1000U}) {
        std::vector<std::vector<std::byte>> messages;
        std::vector<const std::byte*> pointers;
        std::vector<float> want(count);
        for (unsigned m = 0; m < 4; ++m) {
          std::mt19937 random(m);
          std::normal_distribution<float> normal(0.0F, std::ldexp(1.0F, static_cast<int>(3 * m)));
          std::vector<float> values(count);
          for (float& value : values) value = normal(random);
          messages.push_back(encode(values, {}, 1.0F, wire).message);
          const auto terms = decode(messages.back(), count, wire);
          for (std::size_t i = 0; i < count; ++i) want[i] = m == 0 ? terms[i] : want[i] + terms[i];
        }
        for (const auto& message : messages) pointers.push_back(message.data());
        std::vector<float> sum(count + 1, 42.0F);
        auto* const to = reinterpret_cast<std::byte*>(sum.data());
        sum_from_blocks(to, pointers, messages[0].size(), count, wire);
        want.push_back(42.0F);
        ASSERT_EQ(sum, want);
        for (const auto& message : messages) accumulate_blocks(to, message, count, wire);
        ASSERT_EQ(sum.back(), 42.0F);
        if (count > 0) {
          ASSERT_NEAR(sum[0], 2 * want[0], 1e-3F * std::fabs(want[0]) + 1e-3F);
        }
      }
    }
  });
}

/// Bytes that end where the next page must not be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t most)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        length_((most + page_ - 1) / page_ * page_) {
    void* const memory = ::mmap(nullptr, length_ + page_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    EXPECT_EQ(::mprotect(memory_ + length_, page_, PROT_NONE), 0);
  }
  ~GuardedBytes() { ::munmap(memory_, length_ + page_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::span<std::byte> last(std::size_t bytes) const { return {memory_ + length_ - bytes, bytes}; }

 private:
  std::size_t page_;
  std::size_t length_;
  std::byte* memory_ = nullptr;
};

TEST(BlocksTest, SaysHowMuchItLoses) {
  for_each_target([] {
    for (const WireFormat wire : kWires) {
      for (const std::size_t count : {1U, 63U, 300U, 5000U}) {
        std::vector<float> values = all_kinds(count, 7, /*has_nonfinite=*/false);
        for (float& value : values) value = std::clamp(value, -1e6F, 1e6F);
        std::vector<float> residual(count, 0.125F);
        std::vector<std::byte> message(message_size(count, wire));
        RoundingError error{.given = 1, .lost = 2};
        static_cast<void>(encode_blocks(message, reinterpret_cast<const std::byte*>(values.data()),
                                        reinterpret_cast<std::byte*>(residual.data()), count, 0.5,
                                        wire, &error));
        double given = 1;
        double lost = 2;
        for (std::size_t i = 0; i < count; ++i) {
          given += std::pow(double{values[i]} * 0.5 + 0.125, 2);
          lost += std::pow(double{residual[i]}, 2);
        }
        EXPECT_NEAR(error.given, given, given * 1e-5);
        EXPECT_NEAR(error.lost, lost, lost * 1e-5);
      }
    }
    // Of a block that is not finite nothing is known.
    const std::vector<float> values = {1.0F, kInfinity};
    std::vector<float> residual(2);
    std::vector<std::byte> message(message_size(2, WireFormat::kInt8));
    RoundingError error;
    EXPECT_TRUE(encode_blocks(message, reinterpret_cast<const std::byte*>(values.data()),
                              reinterpret_cast<std::byte*>(residual.data()), 2, 1.0,
                              WireFormat::kInt8, &error));
    EXPECT_EQ(error.given, 0);
    EXPECT_EQ(error.lost, 0);
  });
}

TEST(BlocksTest, WhateverAMessageHoldsNothingIsReadOrWrittenPastAnEnd) {
  constexpr std::size_t kMost = 1100;
  const GuardedBytes messages(kBlocksInt8.size(kMost));
  const GuardedBytes elements(kMost * sizeof(float));
  const GuardedBytes residuals(kMost * sizeof(float));
  std::mt19937 random(19);
  const int rounds = is_full ? 1'000'000 : 5'000;
  for_each_target([&] {
    for (int round = 0; round < rounds; ++round) {
      const WireFormat wire = kWires[round % 2];
      const std::size_t count = random() % (kMost + 1);
      const std::size_t bytes = message_size(count, wire);
      const std::span<std::byte> message = messages.last(bytes);
      const std::span<std::byte> floats = elements.last(count * sizeof(float));
      for (std::size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>(random());
      decode_blocks(floats.data(), message, count, wire);
      accumulate_blocks(floats.data(), message, count, wire);
      static_cast<void>(encode_blocks(message, floats.data(), residuals.last(floats.size()).data(),
                                      count, 1.0, wire));
      if (bytes == 0) continue;
      const std::span<std::byte> cut = messages.last(random() % bytes);
      ASSERT_THROW(decode_blocks(floats.data(), cut, count, wire), InvalidArgument);
    }
  });
}

TEST(BlocksTest, WhatCannotBeIsRefusedByName) {
  std::vector<std::byte> message(8);
  std::vector<float> values(4);
  auto* const floats = reinterpret_cast<std::byte*>(values.data());
  const auto refusal = [&](std::size_t bytes, WireFormat wire) -> std::string {
    try {
      decode_blocks(floats, std::span(message).first(bytes), 4, wire);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(6, WireFormat::kInt8), "");
  EXPECT_EQ(refusal(4, WireFormat::kInt4), "");
  EXPECT_THAT(refusal(5, WireFormat::kInt8), testing::HasSubstr("int8 has 6 bytes, not 5"));
  EXPECT_THAT(refusal(7, WireFormat::kInt4), testing::HasSubstr("int4 has 4 bytes, not 7"));
  EXPECT_THAT(refusal(8, WireFormat::kFloat16), testing::HasSubstr("float16 has no blocks"));
  EXPECT_THROW(
      static_cast<void>(encode_blocks(message, floats, nullptr, 4, 1.0, WireFormat::kInt8)),
      InvalidArgument);
  EXPECT_THROW(sum_from_blocks(floats, {}, 6, 4, WireFormat::kInt8), InvalidArgument);
  EXPECT_THROW(static_cast<void>(round_to_wire(message.data(), floats, 4, 1.0, WireFormat::kInt8)),
               InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--full") chainmail::ops::is_full = true;
  }
  return RUN_ALL_TESTS();
}
