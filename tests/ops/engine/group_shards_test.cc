// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A sum of shards has the same bits on any number of ranks and nodes, for all algorithms and
// transports; and ranks that disagree about the shards find out. "--full": more shapes and sizes.

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using Values = std::vector<float>;
using test::bytes_of;
using testing::HasSubstr;

bool is_full = false;

/// A shard's contribution, of numbers whose sum depends on the order in which they are added.
Values leaf(std::uint32_t shard, std::size_t count, WireFormat wire) {
  std::mt19937 random(shard + 1);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  Values values(count);
  for (float& value : values)
    value = std::ldexp(mantissa(random), -static_cast<int>(random() % 40));
  if (wire != WireFormat::kNative) round_as_sent(bytes_of(values), count, wire);
  return values;
}

/// What a rank makes of its shards: its pieces.
std::vector<Values> pieces_of(const ShardCut& cut, int rank, std::size_t count, WireFormat wire) {
  const auto index = static_cast<std::size_t>(rank);
  std::vector<Values> leaves;
  std::vector<ShardRange> nodes;
  for (std::uint32_t shard = cut.bounds[index]; shard < cut.bounds[index + 1]; ++shard) {
    leaves.push_back(leaf(shard, count, wire));
    nodes.push_back({shard, shard + 1});
  }
  const TreeSum plan = plan_sum(cut.tree, nodes);
  std::vector<Values> pieces(plan.results.size(), Values(count));
  std::vector<const std::byte*> sources;
  for (const Values& values : leaves) sources.push_back(bytes_of(values));
  std::vector<std::byte*> places;
  for (Values& piece : pieces) places.push_back(bytes_of(piece));
  std::vector<std::span<std::byte* const>> destinations;
  for (std::byte*& place : places) destinations.emplace_back(&place, 1);
  sum_along_tree(destinations, sources, plan, count, DataType::kFloat32, wire);
  return pieces;
}

std::shared_ptr<ShardCut> even_cut(std::uint32_t shards, int ranks) {
  auto cut = std::make_shared<ShardCut>(ShardCut{ShardTree(shards), {}});
  for (int rank = 0; rank <= ranks; ++rank) {
    cut->bounds.push_back(shards * static_cast<std::uint32_t>(rank) /
                          static_cast<std::uint32_t>(ranks));
  }
  return cut;
}

struct Case {
  Algorithm algorithm;
  WireFormat wire;
  std::size_t count;
};

Collective sum_of(std::vector<Values>& pieces, Values& output, std::shared_ptr<ShardCut> cut) {
  Collective collective = test::on(output);
  collective.shards = std::move(cut);
  for (Values& piece : pieces) collective.pieces.push_back(bytes_of(piece));
  return collective;
}

Values sum_shards(Group& group, const std::shared_ptr<ShardCut>& cut, const Case& one) {
  auto pieces = pieces_of(*cut, group.rank(), one.count, one.wire);
  Values output(one.count);
  Collective collective = sum_of(pieces, output, cut);
  collective.algorithm = one.algorithm;
  collective.wire = one.wire;
  group.run(collective);
  return output;
}

TEST(GroupShardsTest, TheSameBitsOnAnyRanksNodesAlgorithmsAndTransports) {
  constexpr std::uint32_t kShards = 8;
  std::vector<std::vector<int>> shapes = {{1}, {2}, {3}, {2, 1}, {2, 2}, {1, 2, 2}};
  if (is_full) shapes.insert(shapes.end(), {{4}, {5}, {6}, {7}, {8}, {3, 3}, {4, 4}, {3, 3, 2}});
  std::vector<std::size_t> counts = {0, 1, 1000, 70000};
  if (is_full) counts.push_back(3000003);
  std::map<std::pair<WireFormat, std::size_t>, Values> expected;
  for (const auto& nodes : shapes) {
    for (const auto transport : {test::TransportKind::kReal, test::TransportKind::kTcpEverywhere,
                                 test::TransportKind::kEncrypted, test::TransportKind::kMpi}) {
      test::GroupMaker maker(nodes, transport);
      SCOPED_TRACE(Topology::from_node_sizes(nodes).describe() + " " + test::to_string(transport));
      const auto cut = even_cut(kShards, maker.size());
      for (const WireFormat wire :
           {WireFormat::kNative, WireFormat::kFloat16, WireFormat::kBFloat16}) {
        for (const std::size_t count : counts) {
          if (expected.contains({wire, count})) continue;
          expected[{wire, count}] = pieces_of(*even_cut(kShards, 1), 0, count, wire).at(0);
        }
      }
      maker.run_ok([&](int /*rank*/, Group& group) {
        for (const auto& [kind, values] : expected) {
          for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kFlat,
                                            Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
            const auto got = sum_shards(group, cut, {algorithm, kind.first, kind.second});
            ASSERT_EQ(got.size(), values.size());
            const std::size_t bytes = values.size() * sizeof(float);
            ASSERT_TRUE(bytes == 0 || std::memcmp(got.data(), values.data(), bytes) == 0)
                << to_string(algorithm) << " " << to_string(kind.first) << " " << kind.second;
          }
        }
      });
    }
  }
}

TEST(GroupShardsTest, OtherCollectivesMayStandBetween) {
  test::GroupMaker maker({2, 1}, test::TransportKind::kReal);
  const auto cut = even_cut(5, 3);
  maker.run_ok([&](int rank, Group& group) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      Values own(100, static_cast<float>(rank));
      group.run(test::on(own));
      EXPECT_EQ(own[99], 3.0F);
      const Values sum = sum_shards(group, cut, {Algorithm::kAuto, WireFormat::kNative, 300});
      EXPECT_EQ(sum, pieces_of(*even_cut(5, 1), 0, 300, WireFormat::kNative).at(0));
    }
  });
}

TEST(GroupShardsTest, RanksThatCutDifferentlyFindOut) {
  test::GroupMaker maker({2}, test::TransportKind::kReal);
  const auto errors = maker.run([&](int rank, Group& group) {
    auto cut = even_cut(8, 2);
    if (rank == 1) cut->bounds[1] = 5;
    sum_shards(group, cut, {Algorithm::kAuto, WireFormat::kNative, 1000});
  });
  for (const auto& error : errors) {
    EXPECT_THAT(test::text_of(error), HasSubstr("over 8 shards cut at 0 4 8 [1000]"));
    EXPECT_THAT(test::text_of(error), HasSubstr("over 8 shards cut at 0 5 8 [1000]"));
  }
}

TEST(GroupShardsTest, WhatCannotBeSummedIsRefusedWithoutAPeer) {
  test::GroupMaker maker({1}, test::TransportKind::kReal);
  maker.run_ok([&](int /*rank*/, Group& group) {
    const auto refused = [&](const std::function<void(Collective&)>& change) {
      std::vector<Values> pieces(1, Values(10));
      Values output(10);
      Collective collective = sum_of(pieces, output, even_cut(4, 1));
      change(collective);
      try {
        group.run(collective);
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    EXPECT_THAT(refused([](Collective& c) { c.reduce_op = ReduceOp::kMax; }), HasSubstr("max"));
    EXPECT_THAT(refused([](Collective& c) { c.dtype = DataType::kInt32; }), HasSubstr("int32"));
    EXPECT_THAT(refused([](Collective& c) { c.kind = OpKind::kReduce; }), HasSubstr("shards"));
    EXPECT_THAT(refused([](Collective& c) { c.pieces.clear(); }), HasSubstr("0 pieces"));
    EXPECT_THAT(refused([](Collective& c) { c.shards = even_cut(4, 2); }),
                HasSubstr("bounds 0 2 4"));
  });
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    chainmail::ops::is_full = chainmail::ops::is_full || std::string_view(argv[i]) == "--full";
  }
  return RUN_ALL_TESTS();
}
