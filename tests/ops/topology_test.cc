// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace chainmail::ops {
namespace {

using ::testing::ElementsAre;

TEST(TopologyTest, NodesAreNumberedByTheirSmallestRank) {
  const std::vector<std::string> ids = {"b", "a", "b", "c", "a"};
  const Topology topology = Topology::from_node_ids(ids);
  EXPECT_EQ(topology.size(), 5);
  EXPECT_EQ(topology.node_count(), 3);
  EXPECT_THAT(topology.ranks_of_node(0), ElementsAre(0, 2));
  EXPECT_THAT(topology.ranks_of_node(1), ElementsAre(1, 4));
  EXPECT_THAT(topology.ranks_of_node(2), ElementsAre(3));
  EXPECT_EQ(topology.node_of(4), 1);
  EXPECT_EQ(topology.local_rank_of(4), 1);
  EXPECT_EQ(topology.local_rank_of(3), 0);
  EXPECT_EQ(topology.min_local_size(), 1);
  EXPECT_EQ(topology.describe(), "nodes of 2+2+1 ranks");
}

TEST(TopologyTest, EvenNodesAreDescribedAsAProduct) {
  const std::vector<int> sizes = {4, 4};
  EXPECT_EQ(Topology::from_node_sizes(sizes).describe(), "2 nodes x 4 ranks");
  EXPECT_EQ(Topology::from_node_sizes(sizes).min_local_size(), 4);
  EXPECT_EQ(Topology::single_node(1).describe(), "1 node x 1 rank");
  EXPECT_EQ(Topology::single_node(3).node_count(), 1);
}

TEST(TopologyTest, ASubsetIsRenumberedInTheOrderGiven) {
  const std::vector<int> sizes = {3, 1};
  const std::vector<int> ranks = {3, 0, 2};
  const Topology subset = Topology::from_node_sizes(sizes).subset(ranks);
  EXPECT_EQ(subset.size(), 3);
  EXPECT_THAT(subset.ranks_of_node(0), ElementsAre(0));
  EXPECT_THAT(subset.ranks_of_node(1), ElementsAre(1, 2));
}

TEST(TopologyTest, WhatCannotBeATopologyIsRefused) {
  EXPECT_THROW((void)Topology::from_node_ids({}), InvalidArgument);
  EXPECT_THROW((void)Topology::single_node(0), InvalidArgument);
  const std::vector<int> holes = {2, 0};
  EXPECT_THROW((void)Topology::from_node_sizes(holes), InvalidArgument);
  const std::vector<int> outside = {0, 2};
  EXPECT_THROW((void)Topology::single_node(2).subset(outside), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
