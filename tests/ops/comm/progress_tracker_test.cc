// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/progress_tracker.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include <gtest/gtest.h>

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kLimit{1000};
const auto kStart = ProgressTracker::Clock::now() + std::chrono::hours{1};

ProgressTracker::Clock::time_point at(int ms) { return kStart + milliseconds{ms}; }

TEST(ProgressTracker, CountsFromTheLookThatFollowsAMove) {
  ProgressTracker tracker;
  tracker.note(10);
  tracker.look(at(0));
  tracker.look(at(700));  // nothing has moved since
  EXPECT_EQ(tracker.left(kLimit, at(700)), milliseconds{300});
  tracker.note(5);
  EXPECT_EQ(tracker.left(kLimit, at(1000)), nanoseconds::zero());
  tracker.look(at(1000));
  EXPECT_EQ(tracker.left(kLimit, at(1000)), kLimit);
  EXPECT_EQ(tracker.bytes(), 15U);
  tracker.begin();
  EXPECT_EQ(tracker.bytes(), 0U);
}

TEST(ProgressTracker, RanksOfAMachineReadWhatOthersShow) {
  std::atomic<std::uint64_t> place{0};
  ProgressTracker mine;
  ProgressTracker other;
  mine.note();
  mine.look(at(0));
  other.show_in(&place);
  other.note();
  other.look(at(600));
  mine.learn(place.load(), at(800));
  EXPECT_NEAR(static_cast<double>(mine.left(kLimit, at(800)).count()), 8e8, 1e4);
  mine.learn(0, at(900));                        // nobody has shown anything
  mine.learn(~std::uint64_t{0} >> 1U, at(900));  // damaged: not later than now
  EXPECT_LE(mine.left(kLimit, at(900)), kLimit);
  mine.learn(~std::uint64_t{0}, at(901));
  EXPECT_LE(mine.left(kLimit, at(901)), kLimit);
}

TEST(ProgressTracker, WhatIsReportedIsAsOldAsItIs) {
  ProgressTracker mine;
  ProgressTracker other;
  mine.note();
  mine.look(at(0));
  other.note();
  other.look(at(600));
  const auto report = other.report(at(700));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->age, milliseconds{100});
  EXPECT_EQ(report->hops, 1U);
  mine.learn(*report, at(800));
  EXPECT_EQ(mine.left(kLimit, at(800)), milliseconds{900});
  mine.learn({milliseconds{600}, 1}, at(900));  // older than what is known
  EXPECT_EQ(mine.left(kLimit, at(900)), milliseconds{800});
}

// Each report arrives 10 ms late, so that the progress seems to be later at each hop.
TEST(ProgressTracker, RanksThatOnlyWaitForEachOtherDoNotGoOnForEver) {
  ProgressTracker one;
  ProgressTracker two;
  one.note();
  one.look(at(0));
  two.note();
  two.look(at(0));
  int now = 0;
  while (one.left(kLimit, at(now)) > nanoseconds::zero() && now < 100'000) {
    const auto asked = one.report(at(now));
    now += 10;
    if (asked) two.learn(*asked, at(now));
    const auto answer = two.report(at(now));
    now += 10;
    if (answer) one.learn(*answer, at(now));
  }
  EXPECT_LE(now, 1000 + 10 * (static_cast<int>(ProgressTracker::kMaxHops) + 3));
}

TEST(ProgressTracker, ALookIsTakenSeveralTimesWithinALimit) {
  EXPECT_EQ(ProgressTracker::period(kLimit, milliseconds{500}), milliseconds{125});
  EXPECT_EQ(ProgressTracker::period(std::chrono::minutes{10}, milliseconds{500}),
            milliseconds{500});
  EXPECT_EQ(ProgressTracker::period(milliseconds{1}, milliseconds{500}), milliseconds{1});
}

}  // namespace
}  // namespace chainmail::ops
