// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bench/measure/timing_loop.h"

namespace chainmail::bench {
namespace {

using ::testing::ElementsAre;

Timing timing_of(const std::vector<std::vector<double>>& rounds) {
  TimingCollector collector;
  for (const auto& round : rounds) collector.add_round(round);
  return collector.finish();
}

TEST(TimingTest, MedianIsOverRoundsOfTheirMedians) {
  // The median of all nine would be 3.
  const Timing timing = timing_of({{9, 1, 2}, {3, 100, 3}, {50, 40, 60}});
  EXPECT_THAT(timing.rounds, ElementsAre(2, 3, 50));
  EXPECT_EQ(timing.median, 3);
  EXPECT_EQ(timing.min, 1);
  EXPECT_EQ(timing.p90, 60);
}

TEST(TimingTest, NoRoundsAreNoTime) { EXPECT_EQ(timing_of({}).median, 0); }

TEST(TimingTest, RatiosAreBaseOverOurs) {
  const Ratios ratio = ratios(timing_of({{2}, {4}, {3}}), timing_of({{6}, {4}, {12}}));
  EXPECT_DOUBLE_EQ(ratio.median, 2);       // 6 / 3
  EXPECT_DOUBLE_EQ(ratio.min, 2);          // 4 / 2
  EXPECT_DOUBLE_EQ(ratio.worst_round, 1);  // 4 / 4
}

TEST(TimingTest, TheLoopCallsAsOftenAsItSays) {
  int calls = 0;
  const Sample sample = time_calls({3, 5, 4}, [&] { ++calls; });
  EXPECT_EQ(calls, (3 + 5) * 4);
  EXPECT_EQ(sample.us.size(), 5u);
  EXPECT_GE(sample.wall_s, 0);
  EXPECT_GE(sample.cpu_s, 0);
}

}  // namespace
}  // namespace chainmail::bench
