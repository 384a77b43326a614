// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Barriers, and the one that says who is missing.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

c10d::BarrierOptions within(milliseconds limit) {
  c10d::BarrierOptions options;
  options.timeout = limit;
  return options;
}

TEST(Barrier, NobodyLeavesBeforeAllHaveCome) {
  const auto group = make_group();
  group->barrier()->wait();
  const auto start = steady_clock::now();
  if (job().rank == job().size - 1) std::this_thread::sleep_for(milliseconds{300});
  c10d::BarrierOptions options;
  options.device_ids = {0};
  options.asyncOp = job().rank % 2 == 0;
  group->barrier(options)->wait();
  EXPECT_GE(steady_clock::now() - start, milliseconds{290});
}

TEST(MonitoredBarrier, PassesManyTimes) {
  const auto group = make_group();
  for (int i = 0; i < 50; ++i) {
    group->monitoredBarrier(within(milliseconds{20'000}), i % 2 == 0);
  }
}

TEST(MonitoredBarrier, ALimitThatNoClockCanHoldIsNever) {
  const auto group = make_group();
  group->barrier()->wait();
  if (job().rank == 0) std::this_thread::sleep_for(milliseconds{300});
  group->monitoredBarrier(within(milliseconds::max()), true);
}

TEST(MonitoredBarrier, NamesAllWhoAreMissing) {
  if (job().size < 3) GTEST_SKIP() << "needs three ranks";
  const auto group = make_group();
  group->barrier()->wait();
  const auto start = steady_clock::now();
  std::string missing;  // all but ranks 0 and 1
  for (int rank = 2; rank < job().size; ++rank) {
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  constexpr milliseconds kLimit{500};
  const bool is_missing = job().rank >= 2;
  if (is_missing) std::this_thread::sleep_for(kLimit + milliseconds{2000});
  try {
    group->monitoredBarrier(within(kLimit), true);
    ADD_FAILURE() << "rank " << job().rank << " passed";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Ranks " + missing + " failed to pass monitoredBarrier"));
    EXPECT_EQ(error.missing_ranks().size(), static_cast<std::size_t>(job().size - 2));
  }
  if (!is_missing) {
    EXPECT_GE(steady_clock::now() - start, kLimit);
    EXPECT_LT(steady_clock::now() - start, kLimit + milliseconds{1900});
  }
  // It went over the store: the group itself is as it was.
  std::vector<at::Tensor> tensors{torch::ones({2})};
  group->allreduce(tensors)->wait();
  group->monitoredBarrier(within(milliseconds{20'000}));
}

TEST(MonitoredBarrier, NamesTheFirstUnlessToldToWaitForAll) {
  if (job().size < 3) GTEST_SKIP() << "needs three ranks";
  const auto group = make_group();
  group->barrier()->wait();
  const bool is_missing = job().rank >= 1;
  if (is_missing) std::this_thread::sleep_for(milliseconds{700});
  try {
    group->monitoredBarrier(within(milliseconds{300}), false);
    ADD_FAILURE() << "rank " << job().rank << " passed";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.missing_ranks(), std::vector<int>{1});
    EXPECT_THAT(error.what(), HasSubstr("Rank 1 failed to pass monitoredBarrier"));
  }
  group->barrier()->wait();
}

TEST(MonitoredBarrier, WithoutTimeEndsAtOnce) {
  if (job().size < 2) GTEST_SKIP() << "needs two ranks";
  const auto group = make_group();
  group->barrier()->wait();
  if (job().rank == 0) {
    try {
      group->monitoredBarrier(within(milliseconds{0}));
      ADD_FAILURE() << "nobody else has come";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Rank 0 timed out in monitoredBarrier"));
    }
  }
  group->barrier()->wait();
}

TEST(MonitoredBarrier, SaysWhenRankZeroDoesNotAnswer) {
  if (job().size < 2) GTEST_SKIP() << "needs two ranks";
  const auto group = make_group();
  group->barrier()->wait();
  if (job().rank == 0) {
    std::this_thread::sleep_for(milliseconds{5600});
  } else {
    EXPECT_THROW(group->monitoredBarrier(within(milliseconds{200})), TimeoutError);
  }
  group->barrier()->wait();
}

}  // namespace
}  // namespace chainmail::internal
