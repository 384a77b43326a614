// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/shard_pace.h"

#include <gtest/gtest.h>

namespace chainmail::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(ShardPace, IsTheMedianOfTheLastSteps) {
  ShardPace pace;
  pace.add(36, 4, milliseconds(40));
  pace.add(36, 4, milliseconds(4000));
  EXPECT_EQ(pace.shard_time(), microseconds(0)) << "too few steps";
  pace.add(36, 4, milliseconds(44));
  EXPECT_EQ(pace.shard_time(), milliseconds(11)) << "one was held up";
  for (int step = 0; step < 5; ++step) pace.add(36, 2, milliseconds(60));
  EXPECT_EQ(pace.shard_time(), milliseconds(30)) << "five of eight";
}

TEST(ShardPace, LeavesOutStepsThatCannotBeCompared) {
  ShardPace pace;
  for (int epoch = 0; epoch < 20; ++epoch) {
    pace.add(36, 4, milliseconds(40));
    pace.add(3, 1, milliseconds(1));
    pace.add(36, 0, milliseconds(1));
  }
  EXPECT_EQ(pace.shard_time(), milliseconds(10));
}

TEST(ShardPace, IsNeverNothingOnceItIsKnown) {
  ShardPace pace;
  for (int step = 0; step < 3; ++step) pace.add(8, 8, microseconds(2));
  EXPECT_EQ(pace.shard_time(), microseconds(1));
}

}  // namespace
}  // namespace chainmail::internal
