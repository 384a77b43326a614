// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <vector>

#include "plugin/nn/sharded/flat_layout.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kUnit = 64;

ops::Topology nodes_of(std::vector<int> sizes) { return ops::Topology::from_node_sizes(sizes); }

// How often each element of each parameter belongs to a rank.
std::vector<std::vector<int>> owners_of(const std::vector<std::size_t>& counts,
                                        const FlatLayout& layout, int ranks) {
  std::vector<std::vector<int>> owners;
  for (const std::size_t count : counts) owners.emplace_back(count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const SlicePart& part : layout.parts_of(rank)) {
      for (std::size_t i = part.begin; i < part.end; ++i) ++owners[part.parameter].at(i);
    }
  }
  return owners;
}

TEST(FlatLayout, EveryElementBelongsToOneRank) {
  const std::vector<std::size_t> counts{1, 63, 65, 0, 1000, 64, 7};
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{1}, {3}, {4}, {1, 1}, {2, 2}, {3, 3}, {3, 1}}) {
    const ops::Topology topology = nodes_of(sizes);
    const FlatLayout layout = lay_out(counts, topology);
    for (const auto& parameter : owners_of(counts, layout, topology.size())) {
      for (const int owners : parameter) EXPECT_EQ(owners, 1);
    }
  }
}

TEST(FlatLayout, CutsParametersAtWholeVectors) {
  const std::vector<std::size_t> counts{1003, 65};
  const FlatLayout layout = lay_out(counts, nodes_of({4}));
  for (int rank = 0; rank < 4; ++rank) {
    for (const SlicePart& part : layout.parts_of(rank)) {
      EXPECT_EQ(part.begin % kUnit, 0U);
      EXPECT_TRUE(part.end % kUnit == 0 || part.end == counts[part.parameter]);
    }
  }
}

TEST(FlatLayout, PutsSlicesOfOneLocalRankSideBySide) {
  const FlatLayout layout = lay_out(std::vector<std::size_t>{4 * kUnit}, nodes_of({2, 2}));
  EXPECT_EQ(layout.begin_of(0), 0U);
  EXPECT_EQ(layout.begin_of(2), kUnit);  // local rank 0 of the other node
  EXPECT_EQ(layout.begin_of(1), 2 * kUnit);
  EXPECT_EQ(layout.begin_of(3), 3 * kUnit);
}

TEST(FlatLayout, GradientsLeaveOutWhatIsNotThere) {
  const std::vector<std::size_t> counts{256, 100, 256};
  const ops::Topology topology = nodes_of({2, 2});
  const FlatLayout layout = lay_out(counts, topology);
  const GradientLayout all = gradients_of(layout, {1, 1, 1}, 0, topology);
  EXPECT_LE(all.count, most_elements(layout));
  const GradientLayout some = gradients_of(layout, {0, 1, 0}, 1, topology);
  EXPECT_LE(some.count, 100 + 4 * kUnit);
  std::size_t elements = 0;
  for (const GradientPiece& piece : some.pieces) {
    EXPECT_EQ(piece.part.parameter, 1U);
    elements += piece.part.end - piece.part.begin;
  }
  EXPECT_EQ(elements, 100U);
  ASSERT_NE(some.cut, nullptr);
  some.cut->check(some.count, topology);
}

// What a node's owner gets of the sum holds all that its peers with the same local rank need.
TEST(FlatLayout, TheSumsCutFitsTheSlices) {
  const std::vector<std::size_t> counts{777, 64, 5};
  const ops::Topology topology = nodes_of({3, 3});
  const FlatLayout layout = lay_out(counts, topology);
  for (int rank = 0; rank < topology.size(); ++rank) {
    const GradientLayout gradients = gradients_of(layout, {1, 1, 1}, rank, topology);
    const auto local = static_cast<std::size_t>(topology.local_rank_of(rank));
    for (const GradientPiece& piece : gradients.own) {
      EXPECT_GE(piece.offset, gradients.cut->bounds[local]);
      EXPECT_LE(piece.offset + piece.part.end - piece.part.begin, gradients.cut->bounds[local + 1]);
    }
  }
}

TEST(FlatLayout, NodesOfDifferentSizesNeedTheWholeSum) {
  const ops::Topology topology = nodes_of({2, 1});
  const FlatLayout layout = lay_out(std::vector<std::size_t>{300}, topology);
  EXPECT_EQ(gradients_of(layout, {1}, 0, topology).cut, nullptr);
}

}  // namespace
}  // namespace chainmail::internal
