// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/cpu/streams.h"
#include "tests/ops/kernels/cpu/reference.h"
#include "tests/ops/kernels/cpu/targets.h"

namespace chainmail::ops {
namespace {

constexpr int kOps = 8;
constexpr std::byte kGuard{0xa5};

// Bytes of `count` elements; floats are mostly of ordinary size, with infinities and NaN between.
std::vector<std::byte> random_elements(DataType type, std::size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count * size_of(type));
  std::normal_distribution<double> normal(0.0, 8.0);
  std::uniform_int_distribution<int> byte(0, 255);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* to = bytes.data() + i * size_of(type);
    const bool is_wild = byte(random) < 32;
    if (type == DataType::kFloat32 && !is_wild) {
      reference::write(to, static_cast<float>(normal(random)));
    } else if (type == DataType::kFloat64 && !is_wild) {
      reference::write(to, normal(random));
    } else if (reference::is_half(type) && !is_wild) {
      reference::write(to, reference::encode(reference::format_of(type), normal(random)));
    } else {
      for (std::size_t b = 0; b < size_of(type); ++b) to[b] = static_cast<std::byte>(byte(random));
      if (type == DataType::kBool) to[0] &= std::byte{1};
    }
  }
  return bytes;
}

bool is_valid(DataType type, ReduceOp op) { return !is_bitwise(op) || !is_floating_point(type); }

// A buffer of `bytes` that starts `offset` bytes off alignment, between guard bytes.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t offset)
      : storage_(bytes + offset + 192, kGuard), start_(64 + offset), bytes_(bytes) {}
  std::byte* data() { return storage_.data() + start_; }
  bool is_intact() const {
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool is_outside = i < start_ || i >= start_ + bytes_;
      if (is_outside && storage_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> storage_;
  std::size_t start_;
  std::size_t bytes_;
};

struct Case {
  DataType type;
  ReduceOp op;
  std::size_t count;
  std::size_t source_count;
  std::size_t offset;
  double scale = 1.0;
  bool is_for_all = false;
};

void check(const Case& c, std::mt19937& random) {
  const std::size_t size = size_of(c.type);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<Guarded> buffers;
  std::vector<const std::byte*> originals;
  std::vector<const std::byte*> sources;
  for (std::size_t s = 0; s < c.source_count; ++s) {
    inputs.push_back(random_elements(c.type, c.count, random));
    buffers.emplace_back(c.count * size, (c.offset + s) % 7);
  }
  for (std::size_t s = 0; s < c.source_count; ++s) {
    if (c.count != 0) std::memcpy(buffers[s].data(), inputs[s].data(), inputs[s].size());
    originals.push_back(inputs[s].data());
    sources.push_back(buffers[s].data());
  }
  // In place over the last source, or over all of them, as the owner of a slice does.
  std::byte* out = buffers.back().data();
  std::vector<std::byte*> outs = {out};
  if (c.is_for_all) {
    for (std::size_t s = 0; s + 1 < c.source_count; ++s) outs.push_back(buffers[s].data());
  }
  reduce(outs, sources, c.count, c.type, c.op, c.scale);
  for (std::size_t i = 0; i < c.count; ++i) {
    std::byte expected[8];
    reference::reduce_element(expected, originals.data(), c.source_count, i, c.type, c.op, c.scale);
    ASSERT_TRUE(reference::same(out + i * size, expected, c.type))
        << to_string(c.type) << " " << to_string(c.op) << " element " << i << " of " << c.count
        << ", " << c.source_count << " sources";
    for (const std::byte* other : outs) {
      ASSERT_EQ(std::memcmp(out + i * size, other + i * size, size), 0);
    }
  }
  for (const auto& buffer : buffers) ASSERT_TRUE(buffer.is_intact());
}

template <typename Function>
void for_each_type_and_op(const Function& function) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kOps; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (is_valid(type, op)) function(type, op);
    }
  }
}

TEST(ReduceTest, EveryTypeAndOpAtEverySmallCountAndOffset) {
  for_each_target([] {
    std::mt19937 random(1);
    for_each_type_and_op([&random](DataType type, ReduceOp op) {
      for (std::size_t count = 0; count <= 70; ++count) {
        ASSERT_NO_FATAL_FAILURE(check({type, op, count, 2, count % 5}, random));
      }
      for (const std::size_t count : {127u, 128u, 131u, 257u, 1031u}) {
        ASSERT_NO_FATAL_FAILURE(check({type, op, count, 2, 1}, random));
      }
    });
  });
}

TEST(ReduceTest, ManySourcesAreCombinedInOrderAndRoundedOnce) {
  for_each_target([] {
    std::mt19937 random(2);
    for_each_type_and_op([&random](DataType type, ReduceOp op) {
      for (const std::size_t sources : {1u, 3u, 4u, 8u}) {
        for (const std::size_t count : {1u, 33u, 301u}) {
          ASSERT_NO_FATAL_FAILURE(check({type, op, count, sources, 3, 0.25, true}, random));
          ASSERT_NO_FATAL_FAILURE(check({type, op, count, sources, 0, 1.0 / 3.0}, random));
        }
      }
    });
  });
}

TEST(ReduceTest, LongOnesGoInStreams) {
  for_each_target([] {
    std::mt19937 random(4);
    for_each_type_and_op([&random](DataType type, ReduceOp op) {
      const std::size_t count = 50007 / size_of(type);
      ASSERT_NE(stream_length(count, size_of(type), 64), 0u);
      ASSERT_NO_FATAL_FAILURE(check({type, op, count, 2, 1, 0.25, true}, random));
    });
  });
}

TEST(ReduceTest, StreamsLeaveOnlyAFewPagesOver) {
  for (const std::size_t size : {1u, 2u, 4u, 8u}) {
    for (std::size_t count = 0; count < 200000; count += 777) {
      const std::size_t length = stream_length(count, size, 64 / size);
      ASSERT_EQ(length % (64 / size), 0u);
      ASSERT_LE(kStreams * length, count);
      if (length != 0) {
        ASSERT_LT(count - kStreams * length, kStreams * (4096 + 64) / size);
      }
    }
  }
}

TEST(CopyMemoryTest, EveryByteAndNoOther) {
  for_each_target([] {
    for (const std::size_t bytes : {0u, 1u, 63u, 4096u, 32767u, 32768u, 40001u, 131072u, 300007u}) {
      std::vector<std::byte> from(bytes + 2);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * i >> 3);
      std::vector<std::byte> to(bytes + 2, std::byte{0x5a});
      copy_memory(to.data() + 1, from.data() + 1, bytes);
      from.front() = from.back() = std::byte{0x5a};
      ASSERT_EQ(to, from) << bytes;
    }
  });
}

TEST(ReduceTest, TheTargetsOfThisTestAreReallyTaken) {
  for_each_target([] { EXPECT_STREQ(instruction_set(), current_target()); });
}

TEST(ReduceTest, AccumulateAddsToTheDestination) {
  std::vector<std::int32_t> sums = {1, 2, 2147483647};
  const std::vector<std::int32_t> addends = {10, 20, 1};
  accumulate(reinterpret_cast<std::byte*>(sums.data()),
             reinterpret_cast<const std::byte*>(addends.data()), 3, DataType::kInt32,
             ReduceOp::kSum);
  EXPECT_EQ(sums, (std::vector<std::int32_t>{11, 22, -2147483647 - 1}));
}

TEST(ReduceTest, ScalesFloatsInPlace) {
  std::mt19937 random(3);
  for (const auto type :
       {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
    for (std::size_t count = 0; count <= 40; ++count) {
      const auto input = random_elements(type, count, random);
      auto output = input;
      scale_in_place(output.data(), count, type, 1.0 / 3.0);
      const std::byte* source = input.data();
      for (std::size_t i = 0; i < count; ++i) {
        std::byte expected[8];
        reference::reduce_element(expected, &source, 1, i, type, ReduceOp::kSum, 1.0 / 3.0);
        ASSERT_TRUE(reference::same(output.data() + i * size_of(type), expected, type))
            << to_string(type) << " element " << i;
      }
    }
  }
  std::byte none{};
  EXPECT_THROW(scale_in_place(&none, 1, DataType::kInt8, 0.5), InvalidArgument);
}

TEST(ReduceTest, AnAverageOfIntegersRoundsTowardZero) {
  std::vector<std::int64_t> wide = {7, -7, 9, -1, INT64_MIN};
  divide_in_place(reinterpret_cast<std::byte*>(wide.data()), wide.size(), DataType::kInt64, 4);
  EXPECT_EQ(wide, (std::vector<std::int64_t>{1, -1, 2, 0, INT64_MIN / 4}));
  std::vector<std::int8_t> narrow = {127, -128, 5};
  divide_in_place(reinterpret_cast<std::byte*>(narrow.data()), narrow.size(), DataType::kInt8, 3);
  EXPECT_EQ(narrow, (std::vector<std::int8_t>{42, -42, 1}));
  std::vector<std::uint64_t> upper = {UINT64_MAX, UINT64_MAX - 1, 3};
  divide_in_place(reinterpret_cast<std::byte*>(upper.data()), upper.size(), DataType::kUInt64, 2);
  EXPECT_EQ(upper, (std::vector<std::uint64_t>{UINT64_MAX / 2, UINT64_MAX / 2, 1}));
  std::vector<std::uint16_t> shorts = {65535, 4};
  divide_in_place(reinterpret_cast<std::byte*>(shorts.data()), shorts.size(), DataType::kUInt16, 3);
  EXPECT_EQ(shorts, (std::vector<std::uint16_t>{21845, 1}));
  std::vector<std::uint32_t> words = {UINT32_MAX, 7};
  divide_in_place(reinterpret_cast<std::byte*>(words.data()), words.size(), DataType::kUInt32, 3);
  EXPECT_EQ(words, (std::vector<std::uint32_t>{UINT32_MAX / 3, 2}));
  std::vector<std::uint8_t> bytes = {255, 3, 0};
  divide_in_place(reinterpret_cast<std::byte*>(bytes.data()), bytes.size(), DataType::kUInt8, 300);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0, 0, 0}));
  EXPECT_THROW(divide_in_place(reinterpret_cast<std::byte*>(wide.data()), 1, DataType::kInt64, 0),
               InvalidArgument);
  EXPECT_THROW(divide_in_place(reinterpret_cast<std::byte*>(wide.data()), 1, DataType::kFloat32, 2),
               InvalidArgument);
}

TEST(ReduceTest, BitsOfFloatsAndNoSourcesAreRefused) {
  std::byte data[8] = {};
  const std::byte* const source = data;
  EXPECT_THROW(reduce(data, {&source, 1}, 1, DataType::kFloat32, ReduceOp::kBitOr),
               InvalidArgument);
  EXPECT_THROW(reduce(data, {}, 1, DataType::kInt32, ReduceOp::kSum), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
