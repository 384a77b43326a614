// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reductions that end at the owners of slices give the bits of two_dimensional, wherever the slices
// are cut, and gathering them inside the nodes gives every rank the rest: over boards, shared
// memory and TCP, on several shapes of nodes, dtypes and wire formats. And memory in which owners
// of slices need gather nothing, since all ranks of the node have it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using test::GroupMaker;
using test::TransportKind;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

struct Case {
  DataType dtype = DataType::kFloat32;
  WireFormat wire = WireFormat::kNative;
  std::size_t count = 0;
  ReduceOp op = ReduceOp::kAvg;

  std::string describe() const {
    return std::string(to_string(op)) + " of " + std::to_string(count) + " " + to_string(dtype) +
           ", wire " + to_string(wire);
  }
};

/// Numbers of many magnitudes, whose sums depend on the order; on a 16-bit wire some are below its
/// normal numbers, so that their bits depend on the block that they are in.
Bytes input_of(const Case& one, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 17);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-24, 3);
  Bytes data(one.count * size_of(one.dtype));
  const auto put = [&data](std::size_t i, auto value) {
    std::memcpy(data.data() + i * sizeof value, &value, sizeof value);
  };
  for (std::size_t i = 0; i < one.count; ++i) {
    const double value = std::ldexp(normal(random), exponent(random));
    if (one.dtype == DataType::kFloat64) put(i, value);
    if (one.dtype == DataType::kFloat32) put(i, static_cast<float>(value));
    if (size_of(one.dtype) == 2) put(i, static_cast<std::uint16_t>((random() & 0x83ffU) | 0x3800U));
  }
  return data;
}

Collective reduction(const Case& one, Bytes& data) {
  Collective collective;
  collective.dtype = one.dtype;
  collective.reduce_op = one.op;
  collective.count = one.count;
  collective.output = data.data();
  collective.wire = one.wire;
  return collective;
}

/// Slices of very different lengths: the first is empty, the last has what is left.
NodeCut uneven_cut(std::size_t count, std::size_t owners) {
  NodeCut cut;
  cut.bounds.assign(1, 0);
  for (std::size_t owner = 1; owner < owners; ++owner) {
    const std::size_t before = cut.bounds.back();
    const std::size_t length = (count - before) * ((owner - 1) % 4) / 4;
    cut.bounds.push_back(before + length / kWireBlock * kWireBlock);
  }
  cut.bounds.push_back(count);
  cut.common_from = count - std::min<std::size_t>(count, 13);
  return cut;
}

bool are_equal(const Bytes& a, const Bytes& b, std::size_t begin, std::size_t end,
               std::size_t size) {
  return begin == end ||
         std::memcmp(a.data() + begin * size, b.data() + begin * size, (end - begin) * size) == 0;
}

void check(Group& group, const Case& one, bool is_over_nodes) {
  const Topology& topology = group.topology();
  const std::size_t size = size_of(one.dtype);
  const Bytes input = input_of(one, group.rank());
  Bytes whole = input;
  Collective all = reduction(one, whole);
  all.algorithm = topology.node_count() > 1 ? Algorithm::kTwoDimensional : Algorithm::kSingleNode;
  group.run(all);

  Bytes data = input;
  auto cut = std::make_shared<NodeCut>(uneven_cut(one.count, slice_count(topology, is_over_nodes)));
  cut->is_over_nodes = is_over_nodes;
  Collective owned = reduction(one, data);
  owned.cut = cut;
  group.run(owned);
  const std::size_t own = slice_of_rank(topology, group.rank(), is_over_nodes);
  if (own < cut->owners()) {
    EXPECT_TRUE(are_equal(data, whole, cut->bounds[own], cut->bounds[own + 1], size))
        << one.describe() << ": the slice of rank " << group.rank();
  }
  EXPECT_TRUE(are_equal(data, whole, cut->common_from, one.count, size))
      << one.describe() << ": the common elements on rank " << group.rank();

  auto gathered = std::make_shared<NodeCut>(*cut);
  gathered->common_from = 0;
  Collective gather;
  gather.kind = OpKind::kAllGather;
  gather.dtype = one.dtype;
  gather.count = one.count;
  gather.output = data.data();
  gather.cut = gathered;
  group.run(gather);
  EXPECT_TRUE(are_equal(data, whole, 0, one.count, size))
      << one.describe() << ": all elements on rank " << group.rank();
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::size_t count : std::vector<std::size_t>{0, 1, 63, 65, 1000, 100003}) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16}) {
      cases.push_back({dtype, WireFormat::kNative, count});
    }
    cases.push_back({DataType::kFloat32, WireFormat::kFloat16, count});
    cases.push_back({DataType::kFloat32, WireFormat::kBFloat16, count, ReduceOp::kSum});
  }
  return cases;
}

class GroupSlices : public testing::TestWithParam<TransportKind> {};

TEST_P(GroupSlices, HaveTheBitsOfTwoDimensional) {
  const std::vector<std::vector<int>> shapes = {{1},    {2},    {3},    {4},       {1, 1},
                                                {2, 2}, {3, 1}, {3, 2}, {2, 2, 2}, {4, 4}};
  for (const auto& nodes : shapes) {
    SCOPED_TRACE(Topology::from_node_sizes(nodes).describe());
    GroupOptions options;
    options.chunk_bytes = std::size_t{64} << 10;  // several chunks
    GroupMaker maker(nodes, GetParam(), options);
    maker.run_ok([](int /*rank*/, Group& group) {
      for (const Case& one : all_cases()) check(group, one, false);
    });
  }
}

// On more than two nodes a 16-bit wire rounds once here and twice there.
TEST_P(GroupSlices, OverTheNodesHaveTheSameBits) {
  const std::vector<std::vector<int>> shapes = {{1},    {3},    {1, 1},    {2, 2},   {3, 1},
                                                {1, 2}, {3, 2}, {1, 1, 1}, {2, 2, 2}};
  for (const auto& nodes : shapes) {
    SCOPED_TRACE(Topology::from_node_sizes(nodes).describe());
    GroupMaker maker(nodes, GetParam());
    maker.run_ok([&](int /*rank*/, Group& group) {
      for (const Case& one : all_cases()) {
        if (one.wire == WireFormat::kNative || nodes.size() <= 2) check(group, one, true);
      }
    });
  }
}

TEST_P(GroupSlices, RanksThatCutElsewhereFindOut) {
  GroupMaker maker({2, 2}, GetParam());
  const auto errors = maker.run([](int rank, Group& group) {
    Bytes data(4000);
    Collective owned = reduction({.count = 1000}, data);
    const std::size_t middle = rank == 3 ? 256 : 512;
    owned.cut = std::make_shared<NodeCut>(NodeCut{{0, middle, 1000}, 1000});
    group.run(owned);
  });
  for (const auto& error : errors) EXPECT_THAT(test::text_of(error), HasSubstr("cut at 0 512"));
}

TEST_P(GroupSlices, WhatCannotBeCutIsRefused) {
  GroupMaker maker({2}, GetParam());
  maker.run_ok([](int /*rank*/, Group& group) {
    Bytes data(4000);
    const auto refused = [&](const NodeCut& cut, ReduceOp op, const char* why) {
      Collective owned = reduction({.count = 1000, .op = op}, data);
      owned.cut = std::make_shared<NodeCut>(cut);
      try {
        group.run(owned);
        ADD_FAILURE() << "not refused: " << why;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(why));
      }
    };
    refused({{0, 1000}, 0}, ReduceOp::kAvg, "its smallest node needs 3");
    refused({{0, 5, 999}, 0}, ReduceOp::kAvg, "not 0 5 999");
    refused({{0, 1001, 1000}, 0}, ReduceOp::kAvg, "not 0 1001 1000");
    refused({{0, 5, 1000}, 1001}, ReduceOp::kAvg, "common elements from 1001");
    refused({{0, 5, 1000}, 0}, ReduceOp::kMax, "this is max of float32");
  });
}

TEST_P(GroupSlices, CommonMemoryIsOnePieceForEachNode) {
  for (const auto& nodes : std::vector<std::vector<int>>{{1}, {3}, {2, 2}, {3, 1}}) {
    GroupMaker maker(nodes, GetParam(), {});
    maker.run_ok([&](int rank, Group& group) {
      constexpr std::size_t kCount = 65537;
      const auto memory = allocate_common(group, kCount * sizeof(float));
      const Topology& topology = group.topology();
      const std::vector<int>& peers = topology.ranks_of_node(topology.node_of(rank));
      if (memory == nullptr) {
        ASSERT_NE(GetParam(), TransportKind::kReal);
        ASSERT_GT(peers.size(), 1U);
        return;
      }
      auto* const values = reinterpret_cast<float*>(memory.get());
      ASSERT_EQ(std::count(values, values + kCount, 0.0F), static_cast<std::ptrdiff_t>(kCount));
      const auto place_of = [&](int peer) {
        return kCount - 1 - 5000 * static_cast<std::size_t>(topology.local_rank_of(peer));
      };
      Collective barrier;
      barrier.kind = OpKind::kBarrier;
      const bool all_have = nodes.size() == 1 || GetParam() == TransportKind::kReal;
      if (all_have) group.run(barrier);  // not where another node has none, whose ranks are gone
      values[place_of(rank)] = static_cast<float>(rank + 1);
      if (all_have) group.run(barrier);
      for (const int peer : peers) ASSERT_EQ(values[place_of(peer)], static_cast<float>(peer + 1));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, GroupSlices,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere),
                         [](const auto& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace chainmail::ops
