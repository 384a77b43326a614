// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The sum of shards must have the same bits whoever adds which of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/support/draw.h"

namespace chainmail::ops {
namespace {

using test::draw;
using Bytes = std::vector<std::byte>;

/// Shards' contributions with magnitudes from the smallest to the largest that gradients have.
std::vector<Bytes> contributions(std::size_t shards, std::size_t count, DataType type,
                                 WireFormat wire, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> mantissa(-1.0, 1.0);
  std::vector<Bytes> all;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    Bytes& bytes = all.emplace_back(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
      const int exponent = -static_cast<int>(draw(random, 60)) + 20 - static_cast<int>(i / 512 % 4);
      const double value = std::ldexp(mantissa(random), type == DataType::kFloat16 ? 0 : exponent);
      const auto single = static_cast<float>(value);
      if (type == DataType::kFloat64) {
        std::memcpy(&bytes[i * 8], &value, 8);
      } else if (type == DataType::kFloat32) {
        std::memcpy(&bytes[i * 4], &single, 4);
      } else {
        const auto bits = static_cast<std::uint16_t>(draw(random, 0x7000));
        std::memcpy(&bytes[i * 2], &bits, 2);
      }
    }
    if (wire != WireFormat::kNative) round_as_sent(bytes.data(), count, wire);
  }
  return all;
}

/// left + right over all elements, rounded as sent.
Bytes added(const Bytes& left, const Bytes& right, DataType type, WireFormat wire) {
  const std::size_t count = left.size() / size_of(type);
  Bytes sum = left;
  accumulate(sum.data(), right.data(), count, type, ReduceOp::kSum);
  if (wire != WireFormat::kNative) round_as_sent(sum.data(), count, wire);
  return sum;
}

/// By the definition of the tree alone.
Bytes by_definition(const std::vector<Bytes>& leaves, std::size_t begin, std::size_t end,
                    DataType type, WireFormat wire) {
  if (end - begin == 1) return leaves[begin];
  std::size_t left = 1;
  while (2 * left < end - begin) left *= 2;
  return added(by_definition(leaves, begin, begin + left, type, wire),
               by_definition(leaves, begin + left, end, type, wire), type, wire);
}

/// Sums of `sources`, each written to two places.
std::vector<Bytes> sum(const TreeSum& plan, const std::vector<Bytes>& sources, DataType type,
                       WireFormat wire) {
  const std::size_t count = sources[0].size() / size_of(type);
  std::vector<Bytes> first(plan.results.size(), Bytes(sources[0].size()));
  std::vector<Bytes> second = first;
  std::vector<std::vector<std::byte*>> places;
  for (std::size_t k = 0; k < first.size(); ++k) {
    places.push_back({first[k].data(), second[k].data()});
  }
  const std::vector<std::span<std::byte* const>> destinations(places.begin(), places.end());
  std::vector<const std::byte*> from;
  for (const Bytes& source : sources) from.push_back(source.data());
  sum_along_tree(destinations, from, plan, count, type, wire);
  EXPECT_EQ(first, second);
  return first;
}

struct Kind {
  DataType type;
  WireFormat wire;
};

class TreeSumTest : public ::testing::TestWithParam<Kind> {};

TEST_P(TreeSumTest, EveryCutGivesTheSameBits) {
  const auto [type, wire] = GetParam();
  std::mt19937 random(3);
  for (int repetition = 0; repetition < 40; ++repetition) {
    const std::uint32_t shards = 1 + draw(random, 20);
    const std::size_t count = 1 + draw(random, 1500);
    const auto leaves = contributions(shards, count, type, wire, draw(random, 1U << 30U));
    const ShardTree tree(shards);
    std::vector<std::uint32_t> cut{0, shards};
    for (unsigned rank = draw(random, 8); rank > 0; --rank) cut.push_back(draw(random, shards + 1));
    std::sort(cut.begin(), cut.end());
    std::vector<ShardRange> nodes;
    std::vector<Bytes> pieces;
    for (std::size_t rank = 0; rank + 1 < cut.size(); ++rank) {
      std::vector<ShardRange> own;
      for (std::uint32_t shard = cut[rank]; shard < cut[rank + 1]; ++shard) {
        own.push_back({shard, shard + 1});
      }
      if (own.empty()) continue;
      const TreeSum local = plan_sum(tree, own);
      const auto sums =
          sum(local, {leaves.data() + cut[rank], leaves.data() + cut[rank + 1]}, type, wire);
      nodes.insert(nodes.end(), local.results.begin(), local.results.end());
      pieces.insert(pieces.end(), sums.begin(), sums.end());
    }
    const auto all = sum(plan_sum(tree, nodes), pieces, type, wire);
    ASSERT_EQ(all.size(), 1U);
    ASSERT_EQ(all[0], by_definition(leaves, 0, shards, type, wire))
        << shards << " shards in " << cut.size() - 1 << " ranks";
  }
}

TEST_P(TreeSumTest, ResultsMayTakeTheirSourcesPlace) {
  const auto [type, wire] = GetParam();
  const std::size_t count = 1027;
  auto leaves = contributions(4, count, type, wire, 5);
  const Bytes expected = by_definition(leaves, 0, 4, type, wire);
  const std::vector<ShardRange> nodes = {{0, 1}, {1, 2}, {2, 3}, {3, 4}};
  std::vector<std::byte*> places;
  for (Bytes& leaf : leaves) places.push_back(leaf.data());
  const std::vector<const std::byte*> sources(places.begin(), places.end());
  const std::span<std::byte* const> everywhere(places);
  sum_along_tree({&everywhere, 1}, sources, plan_sum(ShardTree(4), nodes), count, type, wire);
  for (const Bytes& leaf : leaves) EXPECT_EQ(leaf, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TreeSumTest,
    ::testing::Values(Kind{DataType::kFloat32, WireFormat::kNative},
                      Kind{DataType::kFloat32, WireFormat::kFloat16},
                      Kind{DataType::kFloat32, WireFormat::kBFloat16},
                      Kind{DataType::kFloat64, WireFormat::kNative},
                      Kind{DataType::kFloat16, WireFormat::kNative},
                      Kind{DataType::kBFloat16, WireFormat::kNative}),
    [](const auto& of) {
      return std::string(to_string(of.param.type)).append("_").append(to_string(of.param.wire));
    });

// What the same bits on a 16-bit wire rest on: what was rounded once travels without loss.
TEST(RoundAsSentTest, WhatWasSentOnceLosesNothingWhenSentAgain) {
  std::mt19937 random(11);
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (int repetition = 0; repetition < 2000; ++repetition) {
      // Any finite bits, and blocks whose elements lie close to each other or far apart.
      std::vector<float> values(kWireBlock + 3);
      const std::uint32_t spread = 1U << draw(random, 31);
      const std::uint32_t base = draw(random, 0x7f000000);
      for (float& value : values) {
        std::uint32_t bits = std::min<std::uint32_t>(base + draw(random, spread), 0x7f7fffff);
        bits |= draw(random, 2) << 31U;
        std::memcpy(&value, &bits, sizeof bits);
      }
      auto* const bytes = reinterpret_cast<std::byte*>(values.data());
      round_as_sent(bytes, values.size(), wire);
      const std::vector<float> once = values;
      round_as_sent(bytes, values.size(), wire);
      ASSERT_EQ(std::memcmp(once.data(), values.data(), values.size() * sizeof(float)), 0)
          << to_string(wire) << " " << base << " " << spread;
    }
  }
}

TEST(SumAlongTreeTest, NumbersThatDoNotMatchAreRefused) {
  const std::vector<ShardRange> nodes = {{0, 1}, {1, 2}};
  const TreeSum plan = plan_sum(ShardTree(2), nodes);
  float a = 1;
  auto* const bytes = reinterpret_cast<std::byte*>(&a);
  const std::vector<const std::byte*> one = {bytes};
  const std::vector<const std::byte*> two = {bytes, bytes};
  const std::span<std::byte* const> everywhere(&bytes, 1);
  EXPECT_THROW(sum_along_tree({&everywhere, 1}, one, plan, 1, DataType::kFloat32), InvalidArgument);
  EXPECT_THROW(sum_along_tree({}, two, plan, 1, DataType::kFloat32), InvalidArgument);
  EXPECT_THROW(
      sum_along_tree({&everywhere, 1}, two, plan, 1, DataType::kFloat64, WireFormat::kFloat16),
      InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
