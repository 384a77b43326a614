// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/callbacks/callback_executor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ops/engine/callbacks/user_code.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{10'000};

class CallbackExecutorTest : public testing::Test {
 protected:
  void TearDown() override { executor_->stop(kLong); }

  std::shared_ptr<CallbackExecutor> executor_ = std::make_shared<CallbackExecutor>();
};

TEST_F(CallbackExecutorTest, TasksRunInOrderInAThreadOfTheirOwn) {
  std::vector<int> order;
  std::atomic<int> inside{0};
  for (int i = 0; i < 1000; ++i) {
    executor_->post([&, i, poster = std::this_thread::get_id()] {
      EXPECT_EQ(++inside, 1);
      EXPECT_NE(std::this_thread::get_id(), poster);
      order.push_back(i);
      --inside;
    });
  }
  EXPECT_TRUE(executor_->drain(kLong));
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(CallbackExecutorTest, ATaskMayWaitForTasksBehindIt) {
  constexpr int kDepth = 5;
  std::vector<std::promise<void>> ended(kDepth);
  for (int i = 0; i < kDepth; ++i) {
    executor_->post([&ended, i] {
      const auto self = static_cast<std::size_t>(i);
      if (self + 1 < ended.size()) {
        EXPECT_EQ(ended[self + 1].get_future().wait_for(kLong), std::future_status::ready);
      }
      ended[self].set_value();
    });
  }
  EXPECT_EQ(ended[0].get_future().wait_for(kLong), std::future_status::ready);
}

TEST_F(CallbackExecutorTest, ATaskMayPostAndDrainIsNotForTasks) {
  std::promise<bool> drained;
  executor_->post([&] { executor_->post([&] { drained.set_value(executor_->drain(kLong)); }); });
  auto result = drained.get_future();
  ASSERT_EQ(result.wait_for(kLong), std::future_status::ready);
  EXPECT_FALSE(result.get());
}

TEST_F(CallbackExecutorTest, StopWaitsForTasksButNotForItsOwn) {
  std::atomic<int> count{0};
  std::promise<void> stopped;
  executor_->post([&] {
    executor_->stop(kLong);
    stopped.set_value();
  });
  EXPECT_EQ(stopped.get_future().wait_for(milliseconds{5'000}), std::future_status::ready);

  const auto other = std::make_shared<CallbackExecutor>();
  for (int i = 0; i < 10; ++i) {
    other->post([&] {
      std::this_thread::sleep_for(milliseconds{2});
      ++count;
    });
  }
  other->stop(kLong);
  EXPECT_EQ(count, 10);
}

TEST_F(CallbackExecutorTest, WhatIsPostedAfterwardsRunsWithTheLastHandle) {
  std::atomic<bool> has_run{false};
  executor_->stop(kLong);
  executor_->post([&] { has_run = true; });
  EXPECT_FALSE(has_run);
  executor_ = std::make_shared<CallbackExecutor>();
  EXPECT_TRUE(has_run);
}

TEST_F(CallbackExecutorTest, ThreadsComeBackAfterARest) {
  for (int round = 0; round < 2; ++round) {
    std::promise<void> ran;
    executor_->post([&] { ran.set_value(); });
    ASSERT_EQ(ran.get_future().wait_for(kLong), std::future_status::ready);
    std::this_thread::sleep_for(milliseconds{2'500});  // the thread has ended by then
  }
}

// The gate is the process's, so a child closes it.
int run_behind_closed_gate() {
  const auto executor = std::make_shared<CallbackExecutor>();
  std::promise<void> begun;
  std::promise<void> may_end;
  executor->post([&] {
    begun.set_value();
    may_end.get_future().wait();
  });
  begun.get_future().wait();
  if (UserCodeGate::close(milliseconds{20})) return 1;  // somebody is inside
  may_end.set_value();
  if (!UserCodeGate::close(kLong)) return 2;
  struct Freed {
    ~Freed() { ::_exit(3); }
  };
  executor->post([freed = std::make_shared<Freed>()] { ::_exit(4); });
  if (!executor->drain(kLong)) return 5;
  executor->stop(kLong);
  return 0;
}

TEST(UserCodeGate, AForkedChildWaitsForNobodyInside) {
  auto executor = std::make_shared<CallbackExecutor>();
  std::promise<void> began;
  std::promise<void> may_end;
  executor->post([&] {
    began.set_value();
    may_end.get_future().wait();
  });
  began.get_future().wait();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(UserCodeGate::close(milliseconds{0}) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  may_end.set_value();
  EXPECT_TRUE(executor->drain(kLong));
  executor->stop(kLong);
}

TEST(UserCodeGate, NothingRunsAndNothingIsFreedOnceItIsClosed) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_behind_closed_gate());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(DefersRelease, CountsItsScopesPerThread) {
  EXPECT_FALSE(DefersRelease::is_active());
  {
    const DefersRelease outer;
    { const DefersRelease inner; }
    EXPECT_TRUE(DefersRelease::is_active());
    std::thread([] { EXPECT_FALSE(DefersRelease::is_active()); }).join();
  }
  EXPECT_FALSE(DefersRelease::is_active());
}

}  // namespace
}  // namespace chainmail::ops
