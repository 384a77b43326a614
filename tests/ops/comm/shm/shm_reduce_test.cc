// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/ops/comm/shm/shm_ranks.h"
#include "tests/ops/kernels/cpu/reference.h"

namespace chainmail::ops {
namespace {

using Bytes = std::vector<std::byte>;

// Elements that differ by rank; floats that do not add up exactly, so that the order matters.
Bytes input_of(int rank, std::size_t count, DataType type) {
  std::mt19937 random(static_cast<unsigned>(1000 * rank + static_cast<int>(type)));
  std::uniform_real_distribution<double> uniform(-3.0, 3.0);
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* to = bytes.data() + i * size_of(type);
    const double value = uniform(random);
    if (type == DataType::kFloat32) {
      reference::write(to, static_cast<float>(value));
    } else if (type == DataType::kFloat64) {
      reference::write(to, value);
    } else if (reference::is_half(type)) {
      reference::write(to, reference::encode(reference::format_of(type), value));
    } else if (type == DataType::kBool) {
      reference::write(to, static_cast<std::uint8_t>(value > 0 ? 1 : 0));
    } else {
      for (std::size_t b = 0; b < size_of(type); ++b) to[b] = static_cast<std::byte>(random());
    }
  }
  return bytes;
}

// The result of every reduction, worked out once for all ranks.
class Expected {
 public:
  explicit Expected(int size) : size_(size) {}

  const Bytes& of(std::size_t count, const Reduction& reduction) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto key = std::tuple(count, reduction.dtype, reduction.op, reduction.scale);
    const auto [entry, is_new] = results_.try_emplace(key);
    if (is_new) entry->second = work_out(count, reduction);
    return entry->second;
  }

 private:
  Bytes work_out(std::size_t count, const Reduction& reduction) const {
    std::vector<Bytes> inputs;
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < size_; ++rank) {
      inputs.push_back(input_of(rank, count, reduction.dtype));
    }
    for (const auto& input : inputs) sources.push_back(input.data());
    Bytes expected(count * size_of(reduction.dtype));
    for (std::size_t i = 0; i < count; ++i) {
      reference::reduce_element(expected.data() + i * size_of(reduction.dtype), sources.data(),
                                sources.size(), i, reduction.dtype, reduction.op, reduction.scale);
    }
    return expected;
  }

  int size_;
  std::mutex mutex_;
  std::map<std::tuple<std::size_t, DataType, ReduceOp, double>, Bytes> results_;
};

void all_reduce_and_check(ShmRank& self, std::size_t count, const Reduction& reduction,
                          Expected& expected) {
  Bytes data = input_of(self.comm.rank(), count, reduction.dtype);
  self.comm.all_reduce(data.data(), count, reduction,
                       self.context(OpKind::kAllReduce, count, reduction.dtype, reduction.op));
  // The reference has one result: equality with it is equality between ranks and from run to run.
  ASSERT_TRUE(data == expected.of(count, reduction))
      << to_string(reduction.dtype) << " " << to_string(reduction.op) << " of " << count
      << " elements on rank " << self.comm.rank() << " of " << self.comm.size();
}

// The root gets what all_reduce gives, and the others keep what they have.
void reduce_and_check(ShmRank& self, std::size_t count, const Reduction& reduction, int root,
                      Expected& expected) {
  const Bytes input = input_of(self.comm.rank(), count, reduction.dtype);
  Bytes data = input;
  self.comm.reduce(data.data(), count, reduction, root,
                   self.context(OpKind::kReduce, count, reduction.dtype, reduction.op));
  const bool is_root = self.comm.rank() == root;
  ASSERT_TRUE(data == (is_root ? expected.of(count, reduction) : input))
      << to_string(reduction.dtype) << " of " << count << " elements to " << root << " on rank "
      << self.comm.rank() << " of " << self.comm.size();
}

class ShmReduceTest : public ::testing::TestWithParam<int> {};

TEST_P(ShmReduceTest, AllReduceOfEveryTypeAndSize) {
  Expected expected(GetParam());
  run_shm_ranks(GetParam(), [&expected](ShmRank& self) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      Reduction reduction;
      reduction.dtype = static_cast<DataType>(t);
      // Inline, staged, and in steps: 65537 elements are 4 to 32 chunks.
      for (const std::size_t count : {0u, 1u, 7u, 22u, 1000u, 65537u}) {
        ASSERT_NO_FATAL_FAILURE(all_reduce_and_check(self, count, reduction, expected));
      }
    }
  });
}

TEST_P(ShmReduceTest, AllReduceOfEveryOp) {
  Expected expected(GetParam());
  run_shm_ranks(GetParam(), [&expected](ShmRank& self) {
    for (const auto type : {DataType::kInt8, DataType::kInt64, DataType::kBool, DataType::kBFloat16,
                            DataType::kFloat32}) {
      for (int o = 0; o <= static_cast<int>(ReduceOp::kBitXor); ++o) {
        Reduction reduction;
        reduction.dtype = type;
        reduction.op = static_cast<ReduceOp>(o);
        if (is_bitwise(reduction.op) && is_floating_point(type)) continue;
        reduction.scale = is_floating_point(type) ? 1.0 / 3.0 : 1.0;
        for (const std::size_t count : {5u, 3001u, 30011u}) {
          ASSERT_NO_FATAL_FAILURE(all_reduce_and_check(self, count, reduction, expected));
        }
      }
    }
  });
}

TEST_P(ShmReduceTest, ReduceToEveryRoot) {
  Expected expected(GetParam());
  run_shm_ranks(GetParam(), [&expected](ShmRank& self) {
    for (const auto type : {DataType::kUInt8, DataType::kBFloat16, DataType::kFloat32}) {
      Reduction reduction;
      reduction.dtype = type;
      reduction.scale = is_floating_point(type) ? 0.25 : 1.0;
      for (const std::size_t count : {0u, 1u, 22u, 1000u, 65537u}) {
        for (int root = 0; root < self.comm.size(); ++root) {
          ASSERT_NO_FATAL_FAILURE(reduce_and_check(self, count, reduction, root, expected));
        }
      }
    }
  });
}

TEST_P(ShmReduceTest, ManyCallsOfChangingSizeKeepTheAreasApart) {
  Expected expected(GetParam());
  run_shm_ranks(GetParam(), [&expected](ShmRank& self) {
    std::mt19937 random(99);  // the same sizes on all ranks
    const Reduction reduction;
    for (int call = 0; call < 120; ++call) {
      const auto kind = random() % 3;
      const std::size_t count = kind == 0 ? random() % 20 : random() % (kind == 1 ? 2000 : 20000);
      const auto root = static_cast<int>(random() % 8);
      if (root < self.comm.size()) {
        ASSERT_NO_FATAL_FAILURE(reduce_and_check(self, count, reduction, root, expected));
      } else {
        ASSERT_NO_FATAL_FAILURE(all_reduce_and_check(self, count, reduction, expected));
      }
    }
  });
}

std::vector<std::size_t> even_bounds(std::size_t count, int size) {
  std::vector<std::size_t> bounds;
  for (int r = 0; r <= size; ++r) {
    bounds.push_back(count * static_cast<std::size_t>(r) / static_cast<std::size_t>(size));
  }
  return bounds;
}

// Everything to one rank, as a leader takes it.
std::vector<std::size_t> bounds_for_one(std::size_t count, int size, int owner) {
  std::vector<std::size_t> bounds;
  for (int r = 0; r <= size; ++r) bounds.push_back(r <= owner ? 0 : count);
  return bounds;
}

TEST_P(ShmReduceTest, ReduceScatterLeavesEachRankItsSlice) {
  Expected expected(GetParam());
  run_shm_ranks(GetParam(), [&expected](ShmRank& self) {
    const int size = self.comm.size();
    for (const auto type : {DataType::kFloat32, DataType::kInt16, DataType::kFloat64}) {
      for (const std::size_t count : {0u, 1u, 7u, 1000u, 40009u}) {
        for (const auto& bounds :
             {even_bounds(count, size), bounds_for_one(count, size, size - 1)}) {
          Reduction reduction;
          reduction.dtype = type;
          const auto rank = static_cast<std::size_t>(self.comm.rank());
          std::vector<std::size_t> in_bytes = bounds;
          for (std::size_t& bound : in_bytes) bound *= size_of(type);
          Bytes data = input_of(self.comm.rank(), count, type);
          Bytes expected_data = data;
          self.comm.reduce_scatter(parts_of<const std::byte>(data.data(), in_bytes),
                                   data.data() + in_bytes[rank], reduction,
                                   self.context(OpKind::kReduceScatter, count, type));
          const Bytes& sums = expected.of(count, reduction);
          std::copy(sums.begin() + static_cast<long>(in_bytes[rank]),
                    sums.begin() + static_cast<long>(in_bytes[rank + 1]),
                    expected_data.begin() + static_cast<long>(in_bytes[rank]));
          ASSERT_TRUE(data == expected_data)
              << count << " elements on rank " << rank << " of " << size;
        }
      }
    }
  });
}

// Whether an attempt ends the call depends on when the others come; the result must not.
TEST_P(ShmReduceTest, AnAttemptIsEndedByTheCallThatFollowsIt) {
  Expected expected(GetParam());
  std::atomic<int> ended{0};
  run_shm_ranks(GetParam(), [&expected, &ended](ShmRank& self) {
    const Reduction reduction;
    const std::vector<std::size_t> counts = {1, 22, 23, 2000, 9001};
    for (std::size_t round = 0; round < 60; ++round) {
      const std::size_t count = counts[round % counts.size()];
      // Every third round a rank comes so late that nobody's attempt can succeed.
      if (round % 3 == 0 && self.comm.rank() == static_cast<int>(round) % self.comm.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
      }
      Bytes data = input_of(self.comm.rank(), count, reduction.dtype);
      const OpContext context = self.context(OpKind::kAllReduce, count);
      if (self.comm.try_all_reduce(data.data(), count, reduction, context.header)) {
        ++ended;
      } else {
        self.comm.all_reduce(data.data(), count, reduction, context);
      }
      ASSERT_TRUE(data == expected.of(count, reduction)) << count << " elements";
    }
  });
  if (GetParam() == 1) {
    EXPECT_EQ(ended, 48) << "alone, all but the calls in steps end at once";
  }
}

TEST_P(ShmReduceTest, AStartedAllReduceIsDoneAtOnce) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    std::vector<float> data(50, 1.0f);
    const auto request =
        self.comm.start_all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                                   self.context(OpKind::kAllReduce, data.size()));
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(data, std::vector<float>(50, static_cast<float>(self.comm.size())));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmReduceTest, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace chainmail::ops
