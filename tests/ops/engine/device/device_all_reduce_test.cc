// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every all-reduce on a device, every wire, every shape of nodes: values against an exact
// reference, the same bits on all ranks and in every order in which streams may run, the same calls
// in the same order on all ranks of a communicator.

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/engine/device/device_world.h"
#include "tests/ops/support/tolerance.h"

namespace chainmail::ops {
namespace {

using test::DeviceRank;
using test::DeviceWorld;
using Buffers = std::vector<std::vector<std::byte>>;

// Small chunks, so that small tensors have several.
constexpr std::size_t kChunkBytes = 4096;

struct Job {
  std::vector<int> nodes;
  Algorithm algorithm = Algorithm::kFlat;
  bool crosses_on_host = false;
  WireFormat wire = WireFormat::kNative;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kAvg;
  std::vector<std::size_t> counts;

  std::string describe() const {
    return Topology::from_node_sizes(nodes).describe() + " " +
           (crosses_on_host ? "non_cuda_aware" : to_string(algorithm)) + " " + to_string(op) +
           " of " + to_string(dtype) + " wire " + to_string(wire);
  }
};

double term(const Job& job, int rank, std::size_t index) {
  const auto mixed = static_cast<double>((index * 7 + static_cast<std::size_t>(rank) * 3) % 5);
  if (job.op == ReduceOp::kProduct) {
    return 1 + static_cast<double>((index + static_cast<std::size_t>(rank)) % 2);
  }
  if (job.dtype == DataType::kBool) return static_cast<double>(mixed > 2);
  const bool is_unsigned = job.dtype == DataType::kUInt8 || job.dtype == DataType::kUInt32 ||
                           job.dtype == DataType::kUInt64;
  if (is_unsigned) return mixed;
  return is_floating_point(job.dtype) ? (mixed - 2) * 0.37 + 0.011 * rank : mixed - 2;
}

/// All ranks' results of all counts, one after the other.
std::vector<Buffers> run(const Job& job, unsigned seed) {
  GroupOptions group;
  group.algorithm = job.algorithm;
  group.wire = job.wire;
  DeviceGroupOptions options;
  options.chunk_bytes = kChunkBytes;
  options.crosses_on_host = job.crosses_on_host;
  options.splits_communicators = seed % 2 == 0;
  options.is_blocking = seed % 3 == 0;
  DeviceWorld world(job.nodes, group, options, seed);
  std::vector<Buffers> results(job.counts.size(), Buffers(static_cast<std::size_t>(world.size())));
  world.run_ok([&](DeviceRank& rank) {
    // All are under way at once; only the last is waited for.
    std::shared_ptr<DeviceOperation> last;
    for (std::size_t c = 0; c < job.counts.size(); ++c) {
      auto& data = results[c][static_cast<std::size_t>(rank.rank)];
      data.resize(job.counts[c] * size_of(job.dtype));
      for (std::size_t i = 0; i < job.counts[c]; ++i) {
        test::set_element(data.data(), job.dtype, i, term(job, rank.rank, i));
      }
      Collective collective;
      collective.dtype = job.dtype;
      collective.reduce_op = job.op;
      collective.wire = job.wire;
      collective.count = job.counts[c];
      collective.output = data.data();
      last = rank.device_group.issue(collective, rank.stream);
    }
    last->wait();
    EXPECT_FALSE(last->has_nonfinite());
  });
  // Members of a communicator have made the same calls; a root's or a peer's number may differ.
  std::map<std::string, std::vector<std::string>> seen;
  for (int rank = 0; rank < world.size(); ++rank) {
    for (auto& [comm, calls] : world.library(rank).nccl().log()) {
      std::vector<std::string> kinds;
      for (const std::string& call : calls) {
        const std::string kind = call.substr(0, call.find(' '));
        if (kind != "send" && kind != "recv") kinds.push_back(call);
      }
      const auto [first, is_new] = seen.emplace(comm, kinds);
      EXPECT_EQ(first->second, kinds) << comm << " on rank " << rank;
    }
    EXPECT_EQ(world.library(rank).nccl().live_communicators(), 0);
    EXPECT_EQ(world.library(rank).nccl().aborts(), 0);
  }
  return results;
}

void check(const Job& job) {
  SCOPED_TRACE(job.describe());
  const int ranks = Topology::from_node_sizes(job.nodes).size();
  const bool is_multi_node = job.nodes.size() > 1;
  const std::vector<Buffers> results = run(job, 1);
  for (std::size_t c = 0; c < job.counts.size(); ++c) {
    const Buffers& buffers = results[c];
    for (std::size_t rank = 1; rank < buffers.size(); ++rank) {
      ASSERT_EQ(buffers[rank], buffers[0]) << "rank " << rank << " has other bits";
    }
    for (std::size_t i = 0; i < job.counts[c]; ++i) {
      std::vector<double> terms;
      double magnitude = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        terms.push_back(term(job, rank, i));
        magnitude += std::abs(terms.back());
      }
      const double exact = test::reduce_exactly(terms, job.dtype, job.op);
      if (job.op == ReduceOp::kAvg) magnitude /= ranks;
      double bound = 0;
      if (is_floating_point(job.dtype)) {
        bound = test::sum_tolerance(job.dtype, is_multi_node ? job.wire : WireFormat::kNative,
                                    ranks, magnitude) +
                test::block_tolerance(job.wire, ranks, ranks);
        // pure_nccl adds in 16 bits, which have fixed steps near 0: a rounding per rank.
        if (job.algorithm == Algorithm::kFlat) bound += bound * ranks + std::ldexp(ranks + 1, -24);
      }
      const double got = test::get_element(buffers[0].data(), job.dtype, i);
      ASSERT_NEAR(got, exact, bound) << "element " << i << " of " << job.counts[c];
    }
  }
  // Other orders of the streams, blocking and splitting or not: the same bits.
  for (const unsigned seed : {2U, 3U}) EXPECT_EQ(run(job, seed), results) << "seed " << seed;
}

const std::vector<std::vector<int>> kShapes = {{1},    {2},          {1, 1},       {3},
                                               {2, 1}, {4},          {2, 2},       {3, 1},
                                               {4, 4}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 2, 3}};
const std::vector<std::size_t> kCounts = {0, 1, 7, 257, 1024, 5003, 20011};

class DeviceAllReduce : public testing::TestWithParam<std::vector<int>> {};

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceAllReduce, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<std::vector<int>>& shape) {
                           std::string name = "nodes";
                           for (const int size : shape.param) name += "_" + std::to_string(size);
                           return name;
                         });

TEST_P(DeviceAllReduce, EveryAlgorithmAndWire) {
  for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kHierarchical,
                                      Algorithm::kTwoDimensional, Algorithm::kAuto}) {
      check({.nodes = GetParam(), .algorithm = algorithm, .wire = wire, .counts = kCounts});
    }
    if (GetParam().size() == 1) {
      check({.nodes = GetParam(),
             .algorithm = Algorithm::kSingleNode,
             .wire = wire,
             .counts = kCounts});
    }
  }
}

TEST_P(DeviceAllReduce, ThroughTheHost) {
  for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16}) {
    check({.nodes = GetParam(),
           .algorithm = Algorithm::kHierarchical,
           .crosses_on_host = true,
           .wire = wire,
           .counts = {1, 257, 20011}});
  }
}

TEST_P(DeviceAllReduce, OtherTypesAndOperations) {
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kTwoDimensional}) {
    for (const DataType dtype : {DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        check({.nodes = GetParam(),
               .algorithm = algorithm,
               .wire = WireFormat::kFloat16,
               .dtype = dtype,
               .op = op,
               .counts = {1, 4099}});
      }
    }
    for (const DataType dtype :
         {DataType::kUInt8, DataType::kInt8, DataType::kInt32, DataType::kInt64, DataType::kBool,
          DataType::kUInt32, DataType::kUInt64}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax}) {
        check({.nodes = GetParam(),
               .algorithm = algorithm,
               .wire = WireFormat::kFloat16,
               .dtype = dtype,
               .op = op,
               .counts = {97}});
      }
    }
    check({.nodes = GetParam(), .algorithm = algorithm, .op = ReduceOp::kProduct, .counts = {97}});
  }
}

TEST(DeviceAllReduceArguments, SingleNodeRefusesSeveral) {
  GroupOptions group;
  DeviceWorld world({1, 1}, group);
  const auto errors = world.run([&](DeviceRank& rank) {
    float value = 1;
    Collective collective;
    collective.algorithm = Algorithm::kSingleNode;
    rank.all_reduce(collective, reinterpret_cast<std::byte*>(&value), 1);
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<InvalidArgument>(error));
    EXPECT_NE(test::text_of(error).find("single_node over 2 nodes"), std::string::npos);
  }
}

TEST(DeviceAllReduceArguments, WhatNcclCannotReduceLeavesTheGroupAlive) {
  DeviceWorld world({2});
  world.run_ok([&](DeviceRank& rank) {
    std::int16_t value = 1;
    Collective collective;
    for (const DataType type : {DataType::kInt16, DataType::kUInt16}) {
      collective.dtype = type;
      EXPECT_THROW(rank.all_reduce(collective, reinterpret_cast<std::byte*>(&value), 1),
                   InvalidArgument);
    }
    collective.dtype = DataType::kInt32;
    collective.reduce_op = ReduceOp::kBitXor;
    int word = 1;
    EXPECT_THROW(rank.all_reduce(collective, reinterpret_cast<std::byte*>(&word), 1),
                 InvalidArgument);
    collective.reduce_op = ReduceOp::kSum;
    rank.all_reduce(collective, reinterpret_cast<std::byte*>(&word), 1);
    EXPECT_EQ(word, 2);
  });
}

}  // namespace
}  // namespace chainmail::ops
