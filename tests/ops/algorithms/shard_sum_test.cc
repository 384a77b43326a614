// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sums of shards over ranks as threads: one result for all numbers of ranks, shapes of nodes, cuts,
// algorithms and sizes of chunks, and that of the tree's definition.

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/algorithms/shard_sum.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/algorithms/rank_comms.h"
#include "tests/ops/support/draw.h"
#include "tests/ops/support/ranks.h"

namespace chainmail::ops {
namespace {

using test::draw;
using Values = std::vector<float>;

std::byte* bytes(Values& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// What a step of `shards` shards is to be summed over.
struct Step {
  std::uint32_t shards = 1;
  std::size_t count = 1;
  WireFormat wire = WireFormat::kNative;
  std::vector<Values> leaves;

  Step(std::uint32_t how_many, std::size_t elements, WireFormat format)
      : shards(how_many), count(elements), wire(format) {
    std::mt19937 random(shards * 31 + static_cast<std::uint32_t>(elements));
    std::uniform_real_distribution<float> mantissa(-1, 1);
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      Values& leaf = leaves.emplace_back(count);
      for (float& value : leaf)
        value = std::ldexp(mantissa(random), -static_cast<int>(draw(random, 50)));
      if (wire != WireFormat::kNative) round_as_sent(bytes(leaf), count, wire);
    }
  }

  /// The sum of shards [begin, end), by the definition of the tree.
  Values sum(std::uint32_t begin, std::uint32_t end) const {
    if (end - begin == 1) return leaves[begin];
    std::uint32_t left = 1;
    while (2 * left < end - begin) left *= 2;
    Values result = sum(begin, begin + left);
    const Values right = sum(begin + left, end);
    for (std::size_t i = 0; i < count; ++i) result[i] += right[i];
    if (wire != WireFormat::kNative) round_as_sent(bytes(result), count, wire);
    return result;
  }
};

struct Job {
  Topology topology;
  Algorithm algorithm;
  std::vector<std::uint32_t> bounds;
  std::size_t chunk_bytes;

  std::string describe() const {
    std::string text = topology.describe() + " " + to_string(algorithm) + " cut";
    for (const std::uint32_t bound : bounds) text += " " + std::to_string(bound);
    return text + " chunks of " + std::to_string(chunk_bytes);
  }
};

class ShardSumTest : public testing::TestWithParam<test::CommKind> {
 protected:
  static void check(const Step& step, const Job& job, const Values& expected) {
    SCOPED_TRACE(job.describe() + " " + std::to_string(step.count) + " elements, wire " +
                 to_string(step.wire));
    const ShardCut cut{ShardTree(step.shards), job.bounds};
    cut.check(job.topology.size());
    test::CommMaker maker(GetParam());
    std::vector<Values> outputs(static_cast<std::size_t>(job.topology.size()));
    test::run_ranks_ok(job.topology.size(), [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      std::vector<Values> pieces;
      for (const ShardRange piece : cut.pieces_of(rank)) {
        pieces.push_back(step.sum(piece.begin, piece.end));
      }
      std::vector<std::byte*> places;
      for (Values& piece : pieces) places.push_back(bytes(piece));
      // Ranks without a shard have a place for the result only; others use their first piece's.
      Values elsewhere(step.count);
      const bool is_elsewhere = pieces.empty() || rank % 2 == 1;
      Values& output = is_elsewhere ? elsewhere : pieces[0];
      const test::RankComms own(job.topology, maker, rank);
      FailureState failure;
      OpContext context{{}, internal::Deadline::after(std::chrono::seconds{60}), &failure, {}};
      const ShardPlan plan(cut, job.topology, rank);
      all_reduce_shards(job.algorithm, own.comms, plan,
                        {places, bytes(output), step.count, DataType::kFloat32, step.wire}, context,
                        job.chunk_bytes);
      outputs[index] = output;
    });
    for (const Values& output : outputs) {
      ASSERT_EQ(std::memcmp(output.data(), expected.data(), step.count * sizeof(float)), 0);
    }
  }

  static std::vector<std::uint32_t> even(std::uint32_t shards, int ranks) {
    std::vector<std::uint32_t> bounds;
    for (int rank = 0; rank <= ranks; ++rank) {
      bounds.push_back(shards * static_cast<std::uint32_t>(rank) /
                       static_cast<std::uint32_t>(ranks));
    }
    return bounds;
  }
};

const std::vector<std::vector<int>> kShapes = {{1},       {2},       {3},       {4},    {5},
                                               {2, 2},    {3, 1},    {1, 3},    {1, 1}, {2, 3},
                                               {1, 2, 1}, {3, 3, 2}, {1, 1, 1}, {4, 4}};
const std::vector<Algorithm> kAlgorithms = {Algorithm::kFlat, Algorithm::kHierarchical,
                                            Algorithm::kTwoDimensional};

TEST_P(ShardSumTest, EveryShapeGivesTheBitsOfTheTree) {
  for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const std::uint32_t shards : {8U, 12U}) {
      const Step step(shards, 2500, wire);
      const Values expected = step.sum(0, shards);
      for (const auto& nodes : kShapes) {
        const Topology topology = Topology::from_node_sizes(nodes);
        for (const Algorithm algorithm : kAlgorithms) {
          check(step, {topology, algorithm, even(shards, topology.size()), 4096}, expected);
        }
      }
    }
  }
}

TEST_P(ShardSumTest, AnyCutAndAnyOrderOfRanksOnNodes) {
  std::mt19937 random(5);
  for (int repetition = 0; repetition < 60; ++repetition) {
    const int ranks = 1 + static_cast<int>(draw(random, 8));
    const std::uint32_t shards = 1 + draw(random, 20);
    const auto wire = static_cast<WireFormat>(draw(random, 3));
    const Step step(shards, draw(random, 1200), wire);
    std::vector<std::string> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(std::to_string(draw(random, 3)));
    std::vector<std::uint32_t> bounds{0, shards};
    for (int rank = 1; rank < ranks; ++rank) bounds.push_back(draw(random, shards + 1));
    std::sort(bounds.begin(), bounds.end());
    check(step,
          {Topology::from_node_ids(nodes), kAlgorithms[draw(random, 3)], bounds,
           1 + draw(random, 6000)},
          step.sum(0, shards));
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, ShardSumTest,
                         testing::Values(test::CommKind::kReference, test::CommKind::kThread),
                         [](const auto& kind) {
                           return kind.param == test::CommKind::kReference ? "board" : "thread";
                         });

}  // namespace
}  // namespace chainmail::ops
