// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/command/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace chainmail::bench {
namespace {

using ::testing::ElementsAre;

TEST(NodesTest, RanksPerNode) {
  EXPECT_THAT(ranks_per_node({2, "", "3"}), ElementsAre(3, 3));
  EXPECT_THAT(ranks_per_node({3, "", "2,1,1"}), ElementsAre(2, 1, 1));
}

TEST(NodesTest, WhatDoesNotFitIsRefused) {
  for (const char* per_node : {"", "0", "-1", "two", "1,2,3", "2,", "2x", "99999"}) {
    EXPECT_THROW((void)ranks_per_node({2, "", per_node}), InvalidArgument) << per_node;
  }
  for (const int nodes : {1, 0, -2}) {
    EXPECT_THROW((void)ranks_per_node({nodes, "", "2"}), InvalidArgument) << nodes;
  }
  EXPECT_THROW((void)ranks_per_node({65, "", "2"}), InvalidArgument);
}

TEST(NodesTest, TheLauncherGetsHostsAndTheProgramItsOwnFlags) {
  const auto words = nodes_command({2, "1gbit", "2,1"}, "/top", {"/top/bin/bench", "-b", "4"});
  EXPECT_THAT(
      std::vector<std::string>(words.begin(), words.begin() + 6),
      ElementsAre("bash", "/top/libexec/chainmail/netns_nodes.sh", "run", "--rate", "1gbit", "2"));
  const auto launcher = std::find(words.begin(), words.end(), "/top/bin/launcher");
  EXPECT_THAT(std::vector<std::string>(launcher, words.end()),
              ElementsAre("/top/bin/launcher", "n1:2,n2:1", "3", "/top/bin/bench", "-b", "4"));
}

TEST(NodesTest, ARateIsTcs) {
  for (const char* rate :
       {"1gbit", "500mbit", "0.5Mbps", "10Kibit", "1000000", "8bit", "2.5gibps"}) {
    EXPECT_NO_THROW(check_rate(rate)) << rate;
  }
  for (const char* rate : {"banana", "gbit", "", "0gbit", "-1gbit", "1 gbit", "1gb", "1ibit", "1kk",
                           "nan", "infbit"}) {
    EXPECT_THROW(check_rate(rate), InvalidArgument) << rate;
  }
  EXPECT_THROW((void)nodes_command({2, "banana", "1"}, "/top", {"bench"}), InvalidArgument);
}

TEST(NodesTest, WithoutARateNothingIsShaped) {
  const auto words = nodes_command({2, "", "1"}, "/top", {"bench"});
  EXPECT_EQ(std::count(words.begin(), words.end(), "--rate"), 0);
}

}  // namespace
}  // namespace chainmail::bench
