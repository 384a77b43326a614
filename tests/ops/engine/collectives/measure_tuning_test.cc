// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/collectives/measure_tuning.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/engine/plan/plan.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

/// A group whose operations take no time and whose ranks agree on the times of `model`.
class FakeGroup {
 public:
  using Model = std::function<std::vector<double>(std::size_t bytes)>;
  explicit FakeGroup(Model model) : model_(std::move(model)) {}

  Tuning measure() {
    return measure_tuning([this](const Collective& collective) { run(collective); },
                          std::chrono::milliseconds{50});
  }
  std::size_t largest() const { return bytes_; }

 private:
  void run(const Collective& collective) {
    if (collective.dtype == DataType::kFloat32) {
      bytes_ = collective.count * sizeof(float);
      return;
    }
    const std::vector<double> times = model_(bytes_);
    ASSERT_EQ(times.size(), collective.count);
    std::memcpy(collective.output, times.data(), times.size() * sizeof(double));
  }

  Model model_;
  std::size_t bytes_ = 0;
};

TEST(MeasureTuning, TakesTheFasterOneOfEachSize) {
  FakeGroup group([](std::size_t bytes) {
    return bytes < 65536 ? std::vector<double>{10, 20} : std::vector<double>{200, 100};
  });
  EXPECT_EQ(group.measure(),
            (Tuning{{0, Algorithm::kHierarchical}, {65536, Algorithm::kTwoDimensional}}));
  EXPECT_EQ(group.largest(), std::size_t{4} << 20);
}

TEST(MeasureTuning, ATieStaysWithTheFewestMessages) {
  FakeGroup group([](std::size_t) { return std::vector<double>{100, 99}; });
  EXPECT_EQ(group.measure(), (Tuning{{0, Algorithm::kHierarchical}}));
}

TEST(MeasureTuning, LeavesOutWhatDoesNotFitTheTime) {
  // 3 repeats of both take 6 ms at 16 KiB and would take 24 ms, then 96 ms, further on.
  FakeGroup group([](std::size_t bytes) {
    const double us = static_cast<double>(bytes) / 16384 * 1000;
    return std::vector<double>{2 * us, us};
  });
  EXPECT_EQ(group.measure(), (Tuning{{0, Algorithm::kTwoDimensional}}));
  EXPECT_EQ(group.largest(), 65536U);
}

// The table is written while what has no choice may be submitted by other threads.
TEST(MeasureTuning, WhatHasNoChoiceDoesNotLookAtTheTable) {
  const std::vector<int> nodes{2, 2};
  const Topology topology = Topology::from_node_sizes(nodes);
  GroupOptions options;
  options.tuning = {{0, Algorithm::kTwoDimensional}};
  for (const OpKind kind :
       {OpKind::kBarrier, OpKind::kBroadcast, OpKind::kAllGather, OpKind::kSend, OpKind::kRecv,
        OpKind::kReduceScatter, OpKind::kAllReduce, OpKind::kReduce}) {
    Collective collective;
    collective.kind = kind;
    collective.count = 1;
    const bool has_choice = kind == OpKind::kAllReduce || kind == OpKind::kReduce;
    EXPECT_EQ(plan_collective(collective, 0, topology, options).algorithm,
              has_choice ? Algorithm::kTwoDimensional : Algorithm::kFlat)
        << to_string(kind);
  }
}

TEST(MeasureTuning, AGroupThatMeasuresPicksTheSameOnAllRanks) {
  GroupOptions options;
  options.timeout = std::chrono::seconds{30};
  options.measures_tuning = true;
  test::GroupMaker maker({2, 2}, test::TransportKind::kReal, options);
  maker.run_ok([](int rank, Group& group) {
    for (const std::size_t count : {1UL, 1000UL, 65537UL}) {
      std::vector<float> values(count, static_cast<float>(rank + 1));
      group.run(test::on(values));
      ASSERT_EQ(values, std::vector<float>(count, 10.0F));
    }
  });
}

}  // namespace
}  // namespace chainmail::ops
