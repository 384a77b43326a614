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

}  // namespace
}  // namespace chainmail::internal
