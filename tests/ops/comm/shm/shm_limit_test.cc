// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The time limit of ranks in shared memory counts while nothing moves: an operation of slow ranks
// takes many times its limit, and one whose rank stops on the way is reported.

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/comm/progress_tracker.h"
#include "tests/ops/comm/shm/shm_ranks.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLimit{500};
constexpr std::size_t kCount = std::size_t{256} << 10;

TEST(ShmLimit, AnOperationInManySlowStepsTakesManyTimesItsLimit) {
  run_shm_ranks(4, [](ShmRank& self) {
    auto context =
        self.context(OpKind::kAllReduce, kCount, DataType::kFloat32, ReduceOp::kSum, kLimit);
    // The last rank is slow whenever it waits; there are more than a hundred steps.
    const bool is_slow = self.comm.rank() == 3;
    context.progress = [is_slow] {
      if (is_slow) std::this_thread::sleep_for(milliseconds{20});
    };
    const auto begin = Clock::now();
    Clock::duration time{};
    for (int i = 0; i < 3 || time < 2 * kLimit; ++i) {
      std::vector<float> all(kCount, 1.0F);
      self.comm.all_reduce(reinterpret_cast<std::byte*>(all.data()), kCount, {}, context);
      EXPECT_EQ(all.back(), 4.0F);
      // All ranks leave in the same round.
      std::vector<double> longest{std::chrono::duration<double>(Clock::now() - begin).count()};
      Reduction most;
      most.dtype = DataType::kFloat64;
      most.op = ReduceOp::kMax;
      self.comm.all_reduce(reinterpret_cast<std::byte*>(longest.data()), 1, most, context);
      time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(longest[0]));
    }
  });
}

// Rank 0 waits for something else and says that it moves; the others wait for rank 0.
TEST(ShmLimit, WhoWaitsForARankThatMovesSomethingElseWaitsAsLongAsItDoes) {
  constexpr int kRanks = 3;
  std::vector<ProgressTracker> movements(kRanks);
  LocalRendezvous rendezvous;
  const auto errors_of = [&](bool is_moving) {
    std::vector<std::exception_ptr> errors(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        FailureState failure;
        try {
          ShmCommOptions options = small_steps();
          options.rank = rank;
          options.size = kRanks;
          options.key_prefix = is_moving ? "moving" : "still";
          options.tracker = &movements[static_cast<std::size_t>(rank)];
          const auto comm = create_shm_comm(
              options, rendezvous, internal::Deadline::after(std::chrono::seconds{30}), &failure);
          ShmRank self{*comm, failure};
          comm->barrier(self.context(OpKind::kBarrier, 0));
          const auto end = Clock::now() + 5 * kLimit;
          while (rank == 0 && Clock::now() < end && !failure.has_failed()) {
            std::this_thread::sleep_for(milliseconds{20});
            if (is_moving) movements[0].note();
            movements[0].look(Clock::now());
          }
          comm->barrier(
              self.context(OpKind::kBarrier, 0, DataType::kUInt8, ReduceOp::kSum, kLimit));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  };
  for (const auto& error : errors_of(true)) EXPECT_EQ(describe(error), "");
  for (const auto& error : errors_of(false)) {
    EXPECT_THAT(describe(error), testing::HasSubstr("waiting for rank 0"));
  }
}

TEST(ShmLimit, ARankThatStopsOnTheWayIsReported) {
  const auto errors = run_shm_ranks_with_errors(3, [](ShmRank& self) {
    auto context =
        self.context(OpKind::kAllReduce, kCount, DataType::kFloat32, ReduceOp::kSum, kLimit);
    int waits = 0;
    const bool stops = self.comm.rank() == 1;
    context.progress = [&] {
      if (stops && ++waits == 5) std::this_thread::sleep_for(6 * kLimit);
    };
    for (int i = 0; i < 50; ++i) {
      std::vector<float> values(kCount, 1.0F);
      self.comm.all_reduce(reinterpret_cast<std::byte*>(values.data()), kCount, {}, context);
    }
  });
  for (const auto& error : errors) {
    EXPECT_THAT(describe(error), testing::HasSubstr("waiting for rank 1 on host testhost"));
  }
}

}  // namespace
}  // namespace chainmail::ops
