// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A time limit counts while nothing moves: operations over a slow wire take many times their limit
// and end well, also on ranks that see no byte of it, and one that stops on the way is reported.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/engine/plan/plan.h"
#include "tests/ops/engine/slow_wire.h"
#include "tests/ops/support/groups.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using test::on;
using test::SlowWire;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Threads of this test may stand still for a while where others have the processors.
const milliseconds kLimit{static_cast<int>(1000 * std::min(patience(), 3.0))};
// What a test's wire needs for an operation, at least.
const milliseconds kTime = 3 * kLimit;

std::string nothing_has_moved() {
  return "nothing of it has moved for " + std::to_string(kLimit.count()) + " ms";
}

/// Groups whose nodes are joined by a slow wire; threads are ranks.
class SlowNodes {
 public:
  SlowNodes(const std::vector<int>& nodes, std::size_t bytes_per_second,
            Encryption encryption = Encryption::kOff)
      : topology_(Topology::from_node_sizes(nodes)),
        encryption_(encryption),
        wire(bytes_per_second) {}

  /// Links between two nodes alone are slow, in Comms of one rank per node.
  void slow_down_only(int a, int b) { only_ = {std::to_string(a), std::to_string(b)}; }

  std::vector<std::exception_ptr> run(const std::function<void(Group&)>& body,
                                      Algorithm algorithm = Algorithm::kAuto) {
    return test::run_ranks(topology_.size(), [&](int rank) {
      GroupOptions options;
      options.algorithm = algorithm;
      options.timeout = kLimit;
      options.secret = std::string(32, 's');
      options.encryption = encryption_;
      options.interface = "127.0.0.1";
      const int node = topology_.node_of(rank);
      options.host = "node" + std::to_string(node + 1);
      const std::string here = std::to_string(node);
      const auto is_slow = [this, here](const std::string& key) {
        if (only_.empty()) return true;
        const std::string there = key.substr(key.rfind('/') + 1);
        return (here == only_[0] && there == only_[1]) || (here == only_[1] && there == only_[0]);
      };
      const auto group = create_group(rank, topology_, wire.before(rendezvous_, is_slow), options);
      Collective barrier;
      barrier.kind = OpKind::kBarrier;
      group->run(barrier);  // all are connected
      body(*group);
    });
  }

 private:
  const Topology topology_;
  const Encryption encryption_;
  const std::shared_ptr<LocalRendezvous> rendezvous_ = std::make_shared<LocalRendezvous>();
  std::vector<std::string> only_;

 public:
  SlowWire wire;
};

/// A wire's speed for so many bytes in each direction.
std::size_t rate_for(std::size_t bytes) {
  return bytes * 1000 / static_cast<std::size_t>(kTime.count());
}

void expect_success(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(test::text_of(errors[rank]), "") << "on rank " << rank;
  }
}

struct Shape {
  const char* name;
  std::vector<int> nodes;
  Algorithm algorithm;
  std::size_t shares;  // of the data that one link carries in a direction: one in so many
  Encryption encryption = Encryption::kOff;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class SlowAllReduce : public testing::TestWithParam<Shape> {};

TEST_P(SlowAllReduce, TakesManyTimesItsLimit) {
  const Shape& shape = GetParam();
  constexpr std::size_t kCount = std::size_t{1} << 20;
  SlowNodes nodes(shape.nodes, rate_for(kCount * sizeof(float) / shape.shares), shape.encryption);
  expect_success(nodes.run(
      [&](Group& group) {
        std::vector<float> values(kCount, 1.0F);
        const auto begin = Clock::now();
        group.run(on(values));
        EXPECT_GT(Clock::now() - begin, 2 * kLimit) << "the wire was not slow enough to tell";
        EXPECT_EQ(values.front(), static_cast<float>(group.size()));
        EXPECT_EQ(values.back(), static_cast<float>(group.size()));
      },
      shape.algorithm));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SlowAllReduce,
    testing::Values(Shape{"flat_1_1", {1, 1}, Algorithm::kFlat, 1},
                    Shape{"flat_1_1_encrypted", {1, 1}, Algorithm::kFlat, 1, Encryption::kEncrypt},
                    Shape{"flat_3_1", {3, 1}, Algorithm::kFlat, 2},
                    Shape{"hierarchical_2_2", {2, 2}, Algorithm::kHierarchical, 1},
                    Shape{"hierarchical_3_1", {3, 1}, Algorithm::kHierarchical, 1},
                    Shape{"hierarchical_2_1_1", {2, 1, 1}, Algorithm::kHierarchical, 2},
                    Shape{"two_dimensional_2_2", {2, 2}, Algorithm::kTwoDimensional, 2},
                    Shape{"two_dimensional_2_2_authenticated",
                          {2, 2},
                          Algorithm::kTwoDimensional,
                          2,
                          Encryption::kAuthenticate},
                    Shape{"two_dimensional_3_1", {3, 1}, Algorithm::kTwoDimensional, 1}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(SlowWireTest, BroadcastAllGatherAndAllToAllTakeManyTimesTheirLimit) {
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kAllGather, OpKind::kAllToAll}) {
    SCOPED_TRACE(to_string(kind));
    constexpr std::size_t kCount = std::size_t{512} << 10;
    SlowNodes nodes({2, 1, 1}, rate_for(kCount * sizeof(float)));
    expect_success(nodes.run([&](Group& group) {
      const auto size = static_cast<std::size_t>(group.size());
      std::vector<float> input(kCount * (kind == OpKind::kAllToAll ? size : 1), 1.0F);
      std::vector<float> output(kCount * size);
      Collective collective = on(input, kind);
      collective.count = kCount;
      if (kind != OpKind::kBroadcast) collective.output = test::bytes_of(output);
      group.run(collective);
    }));
  }
}

// Rank 1 waits for rank 0 in shared memory, which waits for nodes that move something between them
// alone: the news come over two hops.
TEST(SlowWireTest, ARankFarFromTheSlowLinkWaitsAsLongAsSomethingMovesThere) {
  constexpr std::size_t kCount = std::size_t{64} << 10;  // one piece of the ring or the chain
  SlowNodes nodes({2, 1, 1}, rate_for(kCount * sizeof(float) / 3));
  nodes.slow_down_only(1, 2);
  expect_success(nodes.run(
      [&](Group& group) {
        std::vector<float> values(kCount, 1.0F);
        const auto begin = Clock::now();
        group.run(on(values));
        EXPECT_GT(Clock::now() - begin, 2 * kLimit) << "the wire was not slow enough to tell";
        EXPECT_EQ(values.back(), 4.0F);
      },
      Algorithm::kHierarchical));
}

TEST(SlowWireTest, WhatStopsOnTheWayIsReportedWithinTheLimit) {
  for (const Algorithm algorithm :
       {Algorithm::kFlat, Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
    SCOPED_TRACE(to_string(algorithm));
    constexpr std::size_t kCount = std::size_t{1} << 20;
    SlowNodes nodes({2, 2}, rate_for(kCount * sizeof(float)) * 2);
    std::atomic<bool> is_armed{false};
    const auto errors = nodes.run(
        [&](Group& group) {
          std::vector<float> values(kCount, 1.0F);
          if (!is_armed.exchange(true)) nodes.wire.hold_after(std::size_t{1} << 20);
          group.run(on(values));
        },
        algorithm);
    for (const auto& error : errors) {
      EXPECT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
      EXPECT_THAT(test::text_of(error), HasSubstr(nothing_has_moved()));
    }
  }
}

TEST(SlowWireTest, WhoWaitsWithALimitOfItsOwnLeavesInTime) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  SlowNodes nodes({1, 1}, rate_for(kCount * sizeof(float)));
  expect_success(nodes.run([&](Group& group) {
    std::vector<float> values(kCount, 1.0F);
    const auto operation = group.submit(on(values));
    EXPECT_THROW(operation->wait(kLimit + milliseconds{100}), TimeoutError);
    EXPECT_FALSE(operation->is_done());
    operation->wait();
    EXPECT_EQ(values.back(), 2.0F);
  }));
}

TEST(SlowWireTest, TransfersTakeManyTimesTheirLimit) {
  constexpr std::size_t kCount = std::size_t{512} << 10;
  SlowNodes nodes({1, 1}, rate_for(kCount * sizeof(float)));
  expect_success(nodes.run([&](Group& group) {
    // Behind the first, on the same connection, wait a short one, a long one and one with its tag.
    std::vector<std::vector<float>> values{std::vector<float>(kCount, 1), std::vector<float>(10, 2),
                                           std::vector<float>(kCount / 4, 3),
                                           std::vector<float>(kCount / 4, 4)};
    const std::vector<std::uint32_t> tags{1, 2, 3, 1};
    std::vector<std::shared_ptr<Operation>> operations;
    for (std::size_t i = 0; i < values.size(); ++i) {
      Collective transfer = on(values[i], group.rank() == 0 ? OpKind::kSend : OpKind::kRecv);
      transfer.root = 1 - group.rank();
      transfer.tag = tags[i];
      if (group.rank() == 1) values[i].assign(values[i].size(), 0);
      operations.push_back(group.submit(std::move(transfer)));
    }
    for (const auto& operation : operations) operation->wait();
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].back(), static_cast<float>(i + 1));
    }
  }));
}

TEST(SlowWireTest, ATransferThatStopsOnTheWaySaysHowFarItCame) {
  constexpr std::size_t kCount = std::size_t{8} << 20;  // more than the kernel's buffers hold
  SlowNodes nodes({1, 1}, std::size_t{4} << 20);
  std::atomic<bool> is_armed{false};
  const auto errors = nodes.run([&](Group& group) {
    std::vector<float> values(kCount, 1);
    Collective transfer = on(values, group.rank() == 0 ? OpKind::kSend : OpKind::kRecv);
    transfer.root = 1 - group.rank();
    if (!is_armed.exchange(true)) nodes.wire.hold_after(std::size_t{1} << 20);
    group.run(transfer);
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
    EXPECT_THAT(test::text_of(error), HasSubstr(nothing_has_moved() + ", after "));
    EXPECT_THAT(test::text_of(error), HasSubstr(" of 33554432 bytes"));
  }
}

TEST(SlowWireTest, TheEndOfAGroupWaitsForAMessageThatIsComing) {
  constexpr std::size_t kCount = std::size_t{512} << 10;
  SlowNodes nodes({1, 1}, std::size_t{4} << 20);  // half a second
  expect_success(nodes.run([&](Group& group) {
    std::vector<float> values(kCount, group.rank() == 0 ? 1.0F : 0.0F);
    Collective transfer = on(values, group.rank() == 0 ? OpKind::kSend : OpKind::kRecv);
    transfer.root = group.rank() == 0 ? 1 : kAnyRank;
    const auto operation = group.submit(std::move(transfer));
    if (group.rank() == 1) {
      const auto& known = dynamic_cast<const PlannedOperation&>(*operation);
      const auto end = Clock::now() + 20 * kLimit;
      while (known.moved_bytes == 0 && Clock::now() < end) {
        std::this_thread::sleep_for(milliseconds{1});
      }
      ASSERT_FALSE(operation->is_done());
      group.shutdown();
    }
    operation->wait();
    EXPECT_EQ(values.back(), 1.0F);
  }));
}

// Traffic of others is no movement of an operation.
TEST(SlowWireTest, ATransferThatNobodyMatchesIsLateWhileOthersMove) {
  SlowNodes nodes({1, 1}, std::size_t{64} << 20);
  std::atomic<bool> is_over{false};
  const auto errors = nodes.run([&](Group& group) {
    std::vector<float> never(10);
    if (group.rank() == 0) {
      Collective unmatched = on(never, OpKind::kRecv);
      unmatched.root = 1;
      unmatched.tag = 99;
      static_cast<void>(group.submit(unmatched));
    }
    const auto begin = Clock::now();
    while (Clock::now() - begin < 20 * kLimit) {
      std::vector<float> values(std::size_t{100} << 10, 1);
      Collective transfer = on(values, group.rank() == 0 ? OpKind::kSend : OpKind::kRecv);
      transfer.root = 1 - group.rank();
      group.run(transfer);
    }
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
  }
}

}  // namespace
}  // namespace chainmail::ops
