// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/shard_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/ops/support/draw.h"

namespace chainmail::ops {
namespace {

using test::draw;
using ::testing::ElementsAre;

/// The brackets of the whole tree, by the definition alone.
std::string brackets(std::uint32_t begin, std::uint32_t end) {
  if (end - begin == 1) return std::to_string(begin);
  std::uint32_t left = 1;
  while (2 * left < end - begin) left *= 2;
  return "(" + brackets(begin, begin + left) + " " + brackets(begin + left, end) + ")";
}

/// The brackets that come about when `plan` is carried out over the texts of its sources.
std::vector<std::string> carry_out(const TreeSum& plan, const std::vector<std::string>& sources) {
  std::vector<std::string> stack;
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    stack.push_back(sources[i]);
    deepest = std::max(deepest, stack.size());
    for (int merges = plan.merges[i]; merges > 0; --merges) {
      const std::string right = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + " " + right + ")";
    }
  }
  EXPECT_EQ(deepest, plan.depth);
  EXPECT_EQ(stack.size(), plan.results.size());
  return stack;
}

/// What ranks with the ranges of `cut` make of their own shards.
void add_pieces(const ShardTree& tree, ShardRange range, std::vector<ShardRange>& nodes,
                std::vector<std::string>& texts) {
  std::vector<ShardRange> leaves;
  std::vector<std::string> numbers;
  for (std::uint32_t shard = range.begin; shard < range.end; ++shard) {
    leaves.push_back({shard, shard + 1});
    numbers.push_back(std::to_string(shard));
  }
  const TreeSum local = plan_sum(tree, leaves);
  ASSERT_EQ(local.results, tree.pieces(range));
  const auto sums = carry_out(local, numbers);
  nodes.insert(nodes.end(), local.results.begin(), local.results.end());
  texts.insert(texts.end(), sums.begin(), sums.end());
}

TEST(ShardTreeTest, TheLeftHalfIsTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(brackets(0, 6), "(((0 1) (2 3)) (4 5))");
  EXPECT_THAT(ShardTree(6).pieces({0, 6}), ElementsAre(ShardRange{0, 6}));
  EXPECT_THAT(ShardTree(6).pieces({1, 6}),
              ElementsAre(ShardRange{1, 2}, ShardRange{2, 4}, ShardRange{4, 6}));
  EXPECT_THAT(ShardTree(6).pieces({3, 3}), ElementsAre());
  EXPECT_TRUE(ShardTree(6).are_halves({0, 4}, {4, 6}));
  EXPECT_TRUE(ShardTree(6).are_halves({2, 3}, {3, 4}));
  EXPECT_FALSE(ShardTree(6).are_halves({3, 4}, {4, 5})) << "neighbours of two nodes";
  EXPECT_FALSE(ShardTree(6).are_halves({0, 2}, {3, 4})) << "a gap";
}

TEST(ShardTreeTest, EveryCutGivesTheBracketsOfTheTree) {
  std::mt19937 random(7);
  for (int repetition = 0; repetition < 3000; ++repetition) {
    const std::uint32_t shards = 1 + draw(random, 40);
    const std::uint32_t ranks = 1 + draw(random, 9);
    std::vector<std::uint32_t> cut{0, shards};
    for (std::uint32_t rank = 1; rank < ranks; ++rank) cut.push_back(draw(random, shards + 1));
    std::sort(cut.begin(), cut.end());
    const ShardTree tree(shards);
    std::vector<ShardRange> nodes;
    std::vector<std::string> texts;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      add_pieces(tree, {cut[rank], cut[rank + 1]}, nodes, texts);
    }
    const TreeSum all = plan_sum(tree, nodes);
    EXPECT_THAT(all.results, ElementsAre(ShardRange{0, shards}));
    EXPECT_THAT(carry_out(all, texts), ElementsAre(brackets(0, shards)));
  }
}

// The ranks of a node need not follow each other.
TEST(ShardTreeTest, RanksOfTwoNodesInTurnGiveTheBracketsOfTheTree) {
  const ShardTree tree(11);
  const std::vector<std::uint32_t> cut{0, 3, 5, 9, 11};
  std::vector<ShardRange> nodes;
  std::vector<std::string> texts;
  for (const std::vector<std::size_t>& node : {std::vector<std::size_t>{0, 2}, {1, 3}}) {
    std::vector<ShardRange> own;
    std::vector<std::string> own_texts;
    for (const std::size_t rank : node) {
      add_pieces(tree, {cut[rank], cut[rank + 1]}, own, own_texts);
    }
    const TreeSum sum = plan_sum(tree, own);
    const auto sums = carry_out(sum, own_texts);
    nodes.insert(nodes.end(), sum.results.begin(), sum.results.end());
    texts.insert(texts.end(), sums.begin(), sums.end());
  }
  std::vector<std::size_t> order(nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return nodes[a].begin < nodes[b].begin; });
  std::vector<ShardRange> sorted_nodes;
  std::vector<std::string> sorted_texts;
  for (const std::size_t i : order) {
    sorted_nodes.push_back(nodes[i]);
    sorted_texts.push_back(texts[i]);
  }
  EXPECT_THAT(carry_out(plan_sum(tree, sorted_nodes), sorted_texts), ElementsAre(brackets(0, 11)));
}

// P a power of two that divides V: one piece per rank, so that nothing travels twice.
TEST(ShardTreeTest, APowerOfTwoOfRanksHandsOverOnePieceEach) {
  for (const std::uint32_t shards : {8U, 16U, 48U}) {
    for (const std::uint32_t ranks : {1U, 2U, 4U, 8U}) {
      const std::uint32_t each = shards / ranks;
      if ((each & (each - 1)) != 0) continue;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(ShardTree(shards).pieces({rank * each, (rank + 1) * each}).size(), 1U);
      }
    }
  }
}

TEST(ShardTreeTest, WhatIsNoTreeIsRefused) {
  EXPECT_THROW(ShardTree(0), InvalidArgument);
  EXPECT_THROW(ShardTree(ShardTree::kMostShards + 1), InvalidArgument);
  EXPECT_THROW((void)ShardTree(4).pieces({2, 5}), InvalidArgument);
  EXPECT_THROW((void)ShardTree(4).pieces({3, 2}), InvalidArgument);
  const std::vector<ShardRange> overlapping = {{0, 2}, {1, 2}};
  EXPECT_THROW((void)plan_sum(ShardTree(4), overlapping), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
