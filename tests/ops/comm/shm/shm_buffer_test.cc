// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory that all ranks of a node have mapped: what is reduced there has the bits that it has
// anywhere else, and it does not matter who of the ranks uses it.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "tests/ops/comm/shm/shm_ranks.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kCount = 65537;
constexpr std::size_t kBytes = kCount * sizeof(float) + 4096;

std::vector<float> input_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::uniform_real_distribution<float> uniform(-3.0F, 3.0F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

std::vector<float> reduce_at(ShmRank& self, std::byte* data, std::size_t count) {
  const std::vector<float> input = input_of(self.comm.rank(), count);
  std::memcpy(data, input.data(), count * sizeof(float));
  Reduction reduction;
  reduction.scale = 1.0 / 3.0;
  self.comm.all_reduce(data, count, reduction, self.context(OpKind::kAllReduce, count));
  std::vector<float> result(count);
  std::memcpy(result.data(), data, count * sizeof(float));
  return result;
}

std::vector<float> reduce_elsewhere(ShmRank& self, std::size_t count) {
  std::vector<float> own(count);
  return reduce_at(self, reinterpret_cast<std::byte*>(own.data()), count);
}

class ShmBufferTest : public ::testing::TestWithParam<int> {};

TEST_P(ShmBufferTest, GivesTheBitsOfPrivateMemory) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    const auto memory = self.comm.allocate(kBytes, self.context(OpKind::kAllocate, kBytes));
    ASSERT_TRUE(std::all_of(memory.get(), memory.get() + kBytes,
                            [](std::byte byte) { return byte == std::byte{0}; }));
    for (const std::size_t count : {1UL, 1000UL, 5003UL, kCount}) {
      const std::vector<float> expected = reduce_elsewhere(self, count);
      for (const std::size_t offset : {0UL, 4UL, 4096UL}) {
        ASSERT_EQ(reduce_at(self, memory.get() + offset, count), expected) << offset;
      }
    }
  });
}

// Parts of different lengths, one of them empty, in the buffer, elsewhere, and on one rank
// elsewhere.
TEST_P(ShmBufferTest, IsReducedToTheOwnersOfParts) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    const auto memory = self.comm.allocate(kBytes, self.context(OpKind::kAllocate, kBytes));
    const auto ranks = static_cast<std::size_t>(self.comm.size());
    const auto scatter = [&](std::byte* data) {
      const std::vector<float> values = input_of(self.comm.rank(), kCount);
      std::memcpy(data, values.data(), kCount * sizeof(float));
      std::vector<std::span<const std::byte>> parts;
      for (std::size_t r = 0, begin = 0; r < ranks; ++r) {
        const std::size_t end = r + 1 == ranks ? kCount : r == 1 ? begin : begin + 1003 * (r + 1);
        parts.emplace_back(data + begin * sizeof(float), (end - begin) * sizeof(float));
        begin = end;
      }
      const auto& own = parts[static_cast<std::size_t>(self.comm.rank())];
      std::byte* const to = data + (own.data() - data);
      self.comm.reduce_scatter(parts, to, {}, self.context(OpKind::kReduceScatter, kCount));
      return std::vector<std::byte>(own.begin(), own.end());
    };
    std::vector<float> elsewhere(kCount);
    std::byte* const private_memory = reinterpret_cast<std::byte*>(elsewhere.data());
    const std::vector<std::byte> expected = scatter(private_memory);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(scatter(memory.get() + 64 * i), expected);
    ASSERT_EQ(scatter(self.comm.rank() == 0 ? private_memory : memory.get()), expected);
    ASSERT_EQ(scatter(memory.get() + (self.comm.rank() == 0 ? 64 : 0)), expected);
  });
}

TEST_P(ShmBufferTest, RanksMayUseDifferentPlaces) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    const auto first = self.comm.allocate(kBytes, self.context(OpKind::kAllocate, kBytes));
    const auto second = self.comm.allocate(kBytes, self.context(OpKind::kAllocate, kBytes));
    const std::vector<float> expected = reduce_elsewhere(self, kCount);
    for (int odd = 0; odd < self.comm.size(); ++odd) {
      const bool is_odd = self.comm.rank() == odd;
      // Another buffer, another place in the same, and none at all.
      ASSERT_EQ(reduce_at(self, is_odd ? second.get() : first.get(), kCount), expected);
      ASSERT_EQ(reduce_at(self, first.get() + (is_odd ? 64 : 0), kCount), expected);
      ASSERT_EQ(is_odd ? reduce_elsewhere(self, kCount) : reduce_at(self, first.get(), kCount),
                expected);
      ASSERT_EQ(reduce_at(self, first.get(), kCount), expected);
    }
  });
}

TEST_P(ShmBufferTest, MayBeFreedAtAnyTime) {
  std::vector<std::shared_ptr<std::byte>> kept(static_cast<std::size_t>(GetParam()));
  run_shm_ranks(GetParam(), [&kept](ShmRank& self) {
    const auto self_index = static_cast<std::size_t>(self.comm.rank());
    std::vector<float> expected = reduce_elsewhere(self, kCount);
    for (std::size_t round = 0; round < 5; ++round) {
      auto memory = self.comm.allocate(kBytes, self.context(OpKind::kAllocate, kBytes));
      // Some ranks keep theirs for long, others let go at once.
      if (round % 2 == self_index % 2) kept[self_index] = memory;
      ASSERT_EQ(reduce_at(self, memory.get(), kCount), expected);
    }
    const auto none = self.comm.allocate(0, self.context(OpKind::kAllocate, 0));
    ASSERT_NE(none, nullptr);
  });
  for (const auto& memory : kept) {
    if (memory != nullptr) std::memset(memory.get(), 1, kBytes);  // outlives the Comm
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmBufferTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(ShmBufferLimit, WithoutRoomItIsPrivateMemoryOnAllRanks) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  run_shm_ranks(2, [&before](ShmRank& self) {
    const rlimit small{1 << 20, before.rlim_max};
    if (self.comm.rank() == 0) {
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    const auto memory = self.comm.allocate(2 << 20, self.context(OpKind::kAllocate, 2 << 20));
    ASSERT_EQ(reduce_at(self, memory.get(), kCount), reduce_elsewhere(self, kCount));
    ASSERT_EQ(self.comm.allocate_common(4 << 20, self.context(OpKind::kAllocate, 4 << 20)),
              nullptr);
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace chainmail::ops
