// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/shard_tree.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace chainmail::ops {
namespace {

/// Where a node of two shards or more is divided.
std::uint32_t middle_of(ShardRange node) noexcept {
  return node.begin + std::bit_floor(node.length() - 1);
}

void add_pieces(ShardRange node, ShardRange range, std::vector<ShardRange>& pieces) {
  if (node.end <= range.begin || range.end <= node.begin) return;
  if (range.begin <= node.begin && node.end <= range.end) {
    pieces.push_back(node);
    return;
  }
  const std::uint32_t middle = middle_of(node);
  add_pieces({node.begin, middle}, range, pieces);
  add_pieces({middle, node.end}, range, pieces);
}

std::string describe(ShardRange range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

}  // namespace

ShardTree::ShardTree(std::uint32_t shards) : shards_(shards) {
  if (shards >= 1 && shards <= kMostShards) return;
  throw InvalidArgument("a step has 1 to " + std::to_string(kMostShards) + " shards, not " +
                        std::to_string(shards));
}

std::vector<ShardRange> ShardTree::pieces(ShardRange range) const {
  if (range.begin > range.end || range.end > shards_) {
    throw InvalidArgument("shards " + describe(range) + " of " + std::to_string(shards_));
  }
  std::vector<ShardRange> pieces;
  if (range.length() != 0) add_pieces({0, shards_}, range, pieces);
  return pieces;
}

bool ShardTree::are_halves(ShardRange left, ShardRange right) const noexcept {
  if (left.end != right.begin || left.length() == 0 || right.length() == 0) return false;
  ShardRange node{0, shards_};
  while (node.length() > 1) {
    const std::uint32_t middle = middle_of(node);
    if (middle == left.end) return node.begin == left.begin && node.end == right.end;
    node = left.end < middle ? ShardRange{node.begin, middle} : ShardRange{middle, node.end};
  }
  return false;
}

void ShardCut::check(int ranks) const {
  const bool is_complete = bounds.size() == static_cast<std::size_t>(ranks) + 1 &&
                           bounds.front() == 0 && bounds.back() == tree.shards() &&
                           std::is_sorted(bounds.begin(), bounds.end());
  if (is_complete) return;
  std::string text;
  for (const std::uint32_t bound : bounds) text += " " + std::to_string(bound);
  throw InvalidArgument("the cut of " + std::to_string(tree.shards()) + " shards for " +
                        std::to_string(ranks) + " ranks has the bounds" + text +
                        "; they must ascend from 0 to " + std::to_string(tree.shards()) +
                        ", one more than there are ranks");
}

TreeSum plan_sum(const ShardTree& tree, std::span<const ShardRange> sources) {
  TreeSum sum;
  for (const ShardRange source : sources) {
    if (!sum.results.empty() && sum.results.back().end > source.begin) {
      throw InvalidArgument("shards " + describe(source) + " come after " +
                            describe(sum.results.back()));
    }
    sum.results.push_back(source);
    sum.depth = std::max(sum.depth, sum.results.size());
    std::uint8_t merges = 0;
    while (sum.results.size() >= 2 && tree.are_halves(sum.results.end()[-2], sum.results.back())) {
      const ShardRange right = sum.results.back();
      sum.results.pop_back();
      sum.results.back().end = right.end;
      ++merges;
    }
    sum.merges.push_back(merges);
  }
  return sum;
}

}  // namespace chainmail::ops
