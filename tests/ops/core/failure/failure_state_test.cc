// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/failure/failure_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"

namespace chainmail::ops {
namespace {

TEST(FailureStateTest, TheFirstErrorIsWhatEverybodyGets) {
  FailureState state;
  EXPECT_FALSE(state.has_failed());
  EXPECT_NO_THROW(state.rethrow_if_failed());
  EXPECT_TRUE(state.fail(std::make_exception_ptr(PeerError("rank 3 died", 3))));
  EXPECT_FALSE(state.fail(std::make_exception_ptr(TimeoutError("too late"))));
  EXPECT_TRUE(state.has_failed());
  try {
    state.rethrow_if_failed();
    FAIL() << "no exception";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 3);
  }
}

TEST(FailureStateTest, ListenersRunOnceAlsoWhenTheyComeLate) {
  FailureState state;
  int early = 0;
  int late = 0;
  state.on_failure([&early, &state](const std::exception_ptr& error) {
    ++early;
    EXPECT_EQ(error, state.error());
  });
  EXPECT_EQ(early, 0);
  state.fail(std::make_exception_ptr(PeerError("gone")));
  state.fail(std::make_exception_ptr(PeerError("gone again")));
  EXPECT_EQ(early, 1);
  state.on_failure([&late](const std::exception_ptr& error) {
    ++late;
    EXPECT_NE(error, nullptr);
  });
  EXPECT_EQ(late, 1);
}

TEST(FailureStateTest, OfManyThreadsOneIsFirst) {
  FailureState state;
  std::atomic<int> firsts{0};
  std::atomic<int> heard{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&state, &firsts, &heard, i] {
      state.on_failure([&heard](const std::exception_ptr&) { ++heard; });
      if (state.fail(std::make_exception_ptr(PeerError("gone", i)))) ++firsts;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(firsts, 1);
  EXPECT_EQ(heard, 8);
}

}  // namespace
}  // namespace chainmail::ops
