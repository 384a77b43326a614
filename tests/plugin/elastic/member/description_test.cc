// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/member/description.h"

#include <gtest/gtest.h>

namespace chainmail::internal {
namespace {

TEST(Description, OfTheSameHasNoDifference) {
  EXPECT_EQ(difference_of("8 shards\na part 'net'\n", "8 shards\na part 'net'\n"), "");
}

TEST(Description, SaysWhatEitherLacks) {
  EXPECT_EQ(difference_of("8 shards\nSGD\n", "8 shards\nAdam\n"), "here: SGD; in the job: Adam");
  EXPECT_EQ(difference_of("8 shards\n", "8 shards\nAdam\n"),
            "here: nothing else; in the job: Adam");
}

TEST(Description, CountsWhatIsTooMuchToSay) {
  EXPECT_EQ(difference_of("a\nb\nc\nd\ne\n", "f\n"), "here: a, b, c and 2 more; in the job: f");
}

TEST(Description, TellsOtherOrders) {
  EXPECT_EQ(difference_of("a\nb\n", "b\na\n"),
            "here the parts of the state are added in another order");
}

TEST(Description, IsToldWholeWhereItIsShort) { EXPECT_EQ(told_part("a\nb\n", 4), "a\nb\n"); }

TEST(Description, CountsTheLinesThatAreNotTold) {
  const std::string told = told_part("first\nsecond\nthird\n", 8);
  EXPECT_EQ(told.rfind("first\n2 more parts and tensors, not listed, whose digest is ", 0), 0U)
      << told;
  EXPECT_EQ(told.back(), '\n');
  EXPECT_EQ(told_part("longer than what is told\n", 8).rfind("1 more parts", 0), 0U);
}

TEST(Description, TellsADifferenceInLinesThatAreNotTold) {
  const std::string here = told_part("first\nsecond\n", 6);
  EXPECT_EQ(here, told_part("first\nsecond\n", 6));
  const std::string difference = difference_of(here, told_part("first\nother\n", 6));
  EXPECT_EQ(difference.rfind("here: 1 more parts", 0), 0U) << difference;
}

}  // namespace
}  // namespace chainmail::internal
