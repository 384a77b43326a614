// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Barriers, and the one that says who is missing.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Of the same ranks; where those who stay away from a barrier wait until its limit is over.
c10::intrusive_ptr<c10d::ProcessGroup> make_other_group() {
  BackendOptions options;
  options.group_name =
      std::string("over: ") + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  return make_group(options);
}

c10d::BarrierOptions within(milliseconds limit) {
  c10d::BarrierOptions options;
  options.timeout = limit;
  return options;
}

TEST(Barrier, NobodyLeavesBeforeAllHaveCome) {
  const auto group = make_group();
  group->barrier()->wait();
  const auto store = make_job_store(std::chrono::seconds{30});
  if (job().rank == job().size - 1) {
    std::this_thread::sleep_for(milliseconds{300});
    store->add("the last has come", 1);  // unlike set(), it waits until the store has it
  }
  c10d::BarrierOptions options;
  options.device_ids = {0};
  options.asyncOp = job().rank % 2 == 0;
  group->barrier(options)->wait();
  EXPECT_TRUE(store->check({"the last has come"}));
}

TEST(MonitoredBarrier, PassesManyTimes) {
  const auto group = make_group();
  const auto store = make_job_store(std::chrono::seconds{30});
  for (int i = 0; i < 50; ++i) {
    store->add("have come", 1);
    group->monitoredBarrier(within(milliseconds{20'000}), i % 2 == 0);
    EXPECT_GE(store->add("have come", 0), (i + 1) * job().size);
  }
}

TEST(MonitoredBarrier, ALimitThatNoClockCanHoldIsNever) {
  const auto group = make_group();
  group->barrier()->wait();
  const auto store = make_job_store(std::chrono::seconds{30});
  if (job().rank == 0) {
    std::this_thread::sleep_for(milliseconds{300});
    store->add("rank 0 has come", 1);
  }
  group->monitoredBarrier(within(milliseconds::max()), true);
  EXPECT_TRUE(store->check({"rank 0 has come"}));
}

TEST(MonitoredBarrier, NamesAllWhoAreMissing) {
  if (job().size < 3) {
    GTEST_SKIP() << "needs three ranks";
  }
  const auto group = make_group();
  group->barrier()->wait();
  const Stopwatch watch;
  std::string missing;  // all but ranks 0 and 1
  for (int rank = 2; rank < job().size; ++rank) {
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  constexpr milliseconds kLimit{1500};  // also for those who come
  const bool is_missing = job().rank >= 2;
  const auto is_over = make_other_group();
  if (is_missing) is_over->barrier()->wait();
  try {
    group->monitoredBarrier(within(kLimit), true);
    ADD_FAILURE() << "rank " << job().rank << " passed";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Ranks " + missing + " failed to pass monitoredBarrier"));
    EXPECT_EQ(error.missing_ranks().size(), static_cast<std::size_t>(job().size - 2));
  }
  if (!is_missing) {
    EXPECT_GE(watch.elapsed(), kLimit);
    EXPECT_LT(watch.elapsed(), patient(kLimit + milliseconds{1900}));
    is_over->barrier()->wait();
  }
  // It went over the store: the group itself is as it was.
  std::vector<at::Tensor> tensors{torch::ones({2})};
  group->allreduce(tensors)->wait();
  group->monitoredBarrier(within(milliseconds{20'000}));
}

TEST(MonitoredBarrier, NamesTheFirstUnlessToldToWaitForAll) {
  if (job().size < 3) {
    GTEST_SKIP() << "needs three ranks";
  }
  const auto group = make_group();
  group->barrier()->wait();
  const auto is_over = make_other_group();
  const bool is_missing = job().rank >= 1;
  if (is_missing) is_over->barrier()->wait();
  try {
    group->monitoredBarrier(within(milliseconds{300}), false);
    ADD_FAILURE() << "rank " << job().rank << " passed";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.missing_ranks(), std::vector<int>{1});
    EXPECT_THAT(error.what(), HasSubstr("Rank 1 failed to pass monitoredBarrier"));
  }
  if (!is_missing) is_over->barrier()->wait();
  group->barrier()->wait();
}

TEST(MonitoredBarrier, WithoutTimeEndsAtOnce) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
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
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  const auto group = make_group();
  group->barrier()->wait();
  if (job().rank != 0) {
    EXPECT_THROW(group->monitoredBarrier(within(milliseconds{200})), TimeoutError);
  }
  group->barrier()->wait();  // rank 0 answers nobody meanwhile
}

}  // namespace
}  // namespace chainmail::internal
