// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/select.h"

#include <gtest/gtest.h>

namespace chainmail::ops {
namespace {

constexpr std::size_t kSmall = 4;
constexpr std::size_t kLarge = std::size_t{25} << 20;

Algorithm pick(std::size_t bytes, std::vector<int> sizes) {
  return select_all_reduce(bytes, Topology::from_node_sizes(sizes)).algorithm;
}

TEST(Select, OneNodeNeedsNoWire) {
  EXPECT_EQ(pick(kSmall, {4}), Algorithm::kSingleNode);
  EXPECT_EQ(pick(kLarge, {1}), Algorithm::kSingleNode);
}

TEST(Select, NodesOfOneRankAreFlat) { EXPECT_EQ(pick(kLarge, {1, 1, 1}), Algorithm::kFlat); }

TEST(Select, SmallMessagesTakeTheFewestSteps) {
  EXPECT_EQ(pick(kSmall, {2, 2}), Algorithm::kHierarchical);
  EXPECT_EQ(pick(0, {4, 4}), Algorithm::kHierarchical);
}

TEST(Select, LargeMessagesUseAllCores) {
  EXPECT_EQ(pick(kLarge, {2, 2}), Algorithm::kTwoDimensional);
  EXPECT_EQ(pick(kLarge, {4, 2}), Algorithm::kTwoDimensional);
}

TEST(Select, ALoneRankBesideOthersLeavesOnlyTheLeader) {
  EXPECT_EQ(pick(kLarge, {3, 1}), Algorithm::kHierarchical);
}

TEST(Select, AlwaysSaysWhy) {
  for (const std::vector<int>& sizes : {std::vector<int>{4}, {1, 1}, {2, 2}, {3, 1}}) {
    for (const std::size_t bytes : {kSmall, kLarge}) {
      EXPECT_STRNE(select_all_reduce(bytes, Topology::from_node_sizes(sizes)).reason, "");
    }
  }
}

}  // namespace
}  // namespace chainmail::ops
