// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which ranks are stuck, and which of them the others wait for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/controller/ranks/stall_detector.h"

namespace chainmail::launch {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const StallDetector::Time kStart{};

TEST(StallDetector, RanksThatHaveSaidNothingYetAreStarting) {
  const StallDetector stalls(2);
  EXPECT_FALSE(stalls.find(kStart + seconds(1000), seconds(10)));
}

TEST(StallDetector, WhoGoesOnIsNotStuck) {
  StallDetector stalls(1);
  for (unsigned i = 0; i < 10; ++i) stalls.update(0, {i, 0}, kStart + seconds(9 * i));
  EXPECT_FALSE(stalls.find(kStart + seconds(90), seconds(10)));
  stalls.update(0, {9, 0}, kStart + seconds(90));  // the same again is no progress
  EXPECT_TRUE(stalls.find(kStart + seconds(92), seconds(10)));
}

TEST(StallDetector, TheRankThatOthersWaitForIsNamed) {
  StallDetector stalls(3);
  for (const std::uint32_t rank : {0U, 1U, 2U}) stalls.update(rank, {5, 50}, kStart);
  stalls.update(0, {5, 51}, kStart);
  stalls.update(2, {5, 51}, kStart);
  const auto stall = stalls.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(1));
  EXPECT_EQ(stall->text,
            "no progress for 60 s: stands at step 5, operation 50, where others that wait are at "
            "step 5, operation 51");
}

TEST(StallDetector, WhoWaitsForARankThatWasHeardOfLastIsNotNamed) {
  StallDetector stalls(3);
  stalls.update(1, {5, 51}, kStart);
  stalls.update(2, {5, 50}, kStart + seconds(1));
  stalls.update(0, {5, 50}, kStart + seconds(2));
  EXPECT_FALSE(stalls.find(kStart + seconds(60), seconds(60)));
  EXPECT_FALSE(stalls.find(kStart + seconds(61), seconds(60)));
  const auto stall = stalls.find(kStart + seconds(62), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0, 2));
}

TEST(StallDetector, WhoIsFurtherThanOthersThatGoOnIsStuckAfterTwiceTheLimit) {
  StallDetector stalls(2);
  stalls.update(0, {5, 50}, kStart);
  for (unsigned i = 0; i < 13; ++i) stalls.update(1, {0, i}, kStart + seconds(10 * i));
  EXPECT_FALSE(stalls.find(kStart + seconds(119), seconds(60)));
  const auto stall = stalls.find(kStart + seconds(120), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0));
}

// Who has not come to the world yet has made more steps, and who has just joined fewer.
TEST(StallDetector, TheRankThatIsStillInAnOlderWorldIsNamed) {
  StallDetector stalls(3);
  stalls.update(0, {7, 1, 3}, kStart);
  stalls.update(1, {900, 50, 2}, kStart);
  stalls.update(2, {7, 1, 3}, kStart);
  const auto stall = stalls.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(1));
  EXPECT_EQ(stall->text,
            "no progress for 60 s: stands at world 2, step 900, operation 50, where others that "
            "wait are at world 3, step 7, operation 1");
}

TEST(StallDetector, SparesAreNotLookedAt) {
  StallDetector stalls(3);
  stalls.update(0, {5, 50}, kStart + seconds(60));
  stalls.update(1, {5, 51}, kStart);
  stalls.update(2, {2, 20}, kStart);
  const auto is_member = [](std::uint32_t rank) { return rank != 2; };
  EXPECT_TRUE(stalls.find(kStart + seconds(61), seconds(60)));
  EXPECT_FALSE(stalls.find(kStart + seconds(61), seconds(60), is_member));
  const auto stall = stalls.find(kStart + seconds(120), seconds(60), is_member);
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0));
}

TEST(StallDetector, NobodyIsNamedWhenAllAreEquallyFar) {
  StallDetector stalls(2);
  stalls.update(0, {0, 7}, kStart);
  stalls.update(1, {0, 7}, kStart);
  const auto stall = stalls.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty());
  EXPECT_EQ(stall->text, "no progress for 60 s: stands at operation 7");
}

TEST(StallDetector, RanksThatHaveEndedAndHeldUpLaunchersCountForNothing) {
  StallDetector stalls(2);
  stalls.update(0, {1, 1}, kStart);
  stalls.update(1, {1, 1}, kStart);
  stalls.forget(0);
  stalls.start_anew(kStart + seconds(50));
  EXPECT_FALSE(stalls.find(kStart + seconds(60), seconds(60)));
  const auto stall = stalls.find(kStart + seconds(110), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty()) << "all that are left";
}

}  // namespace
}  // namespace chainmail::launch
