// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which ranks are stuck, and which of them the others wait for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/controller/ranks/stall_watch.h"

namespace chainmail::launch {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const StallWatch::Time kStart{};

TEST(StallWatch, RanksThatHaveSaidNothingYetAreStarting) {
  const StallWatch watch(2);
  EXPECT_FALSE(watch.find(kStart + seconds(1000), seconds(10)));
}

TEST(StallWatch, WhoGoesOnIsNotStuck) {
  StallWatch watch(1);
  for (unsigned i = 0; i < 10; ++i) watch.update(0, {i, 0}, kStart + seconds(9 * i));
  EXPECT_FALSE(watch.find(kStart + seconds(90), seconds(10)));
  watch.update(0, {9, 0}, kStart + seconds(90));  // the same again is no progress
  EXPECT_TRUE(watch.find(kStart + seconds(92), seconds(10)));
}

TEST(StallWatch, TheRankThatOthersWaitForIsNamed) {
  StallWatch watch(3);
  for (const std::uint32_t rank : {0U, 1U, 2U}) watch.update(rank, {5, 50}, kStart);
  watch.update(0, {5, 51}, kStart);
  watch.update(2, {5, 51}, kStart);
  const auto stall = watch.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(1));
  EXPECT_EQ(stall->text,
            "no progress for 60 s: stands at step 5, operation 50, where others that wait are at "
            "step 5, operation 51");
}

TEST(StallWatch, WhoWaitsForARankThatWasHeardOfLastIsNotNamed) {
  StallWatch watch(3);
  watch.update(1, {5, 51}, kStart);
  watch.update(2, {5, 50}, kStart + seconds(1));
  watch.update(0, {5, 50}, kStart + seconds(2));
  EXPECT_FALSE(watch.find(kStart + seconds(60), seconds(60)));
  EXPECT_FALSE(watch.find(kStart + seconds(61), seconds(60)));
  const auto stall = watch.find(kStart + seconds(62), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0, 2));
}

TEST(StallWatch, WhoIsFurtherThanOthersThatGoOnIsStuckAfterTwiceTheLimit) {
  StallWatch watch(2);
  watch.update(0, {5, 50}, kStart);
  for (unsigned i = 0; i < 13; ++i) watch.update(1, {0, i}, kStart + seconds(10 * i));
  EXPECT_FALSE(watch.find(kStart + seconds(119), seconds(60)));
  const auto stall = watch.find(kStart + seconds(120), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0));
}

TEST(StallWatch, NobodyIsNamedWhenAllAreEquallyFar) {
  StallWatch watch(2);
  watch.update(0, {0, 7}, kStart);
  watch.update(1, {0, 7}, kStart);
  const auto stall = watch.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty());
  EXPECT_EQ(stall->text, "no progress for 60 s: stands at operation 7");
}

TEST(StallWatch, RanksThatHaveEndedAndHeldUpLaunchersCountForNothing) {
  StallWatch watch(2);
  watch.update(0, {1, 1}, kStart);
  watch.update(1, {1, 1}, kStart);
  watch.forget(0);
  watch.start_anew(kStart + seconds(50));
  EXPECT_FALSE(watch.find(kStart + seconds(60), seconds(60)));
  const auto stall = watch.find(kStart + seconds(110), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty()) << "all that are left";
}

}  // namespace
}  // namespace chainmail::launch
