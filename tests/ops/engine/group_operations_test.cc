// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every kind of operation through a group, on one node and on several.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"
#include "tests/ops/support/tolerance.h"

namespace chainmail::ops {
namespace {

using test::bytes_of;
using test::GroupMaker;
using test::on;
using test::TransportKind;

const std::vector<std::vector<int>> kShapes = {{1}, {2}, {3}, {4}, {2, 2}, {3, 1}, {1, 2}, {1, 1}};
const std::vector<std::size_t> kCounts = {0, 1, 7, 1000, 65537};

class GroupOperations : public testing::TestWithParam<TransportKind> {
 protected:
  static void on_all_shapes(const std::function<void(int rank, Group& group)>& body) {
    for (const auto& nodes : kShapes) {
      GroupMaker maker(nodes, GetParam(), limits());
      SCOPED_TRACE(Topology::from_node_sizes(nodes).describe());
      maker.run_ok(body);
    }
  }
  static GroupOptions limits() {
    GroupOptions options;
    options.timeout = std::chrono::seconds{30};
    return options;
  }
};

TEST_P(GroupOperations, AllReduceByEveryAlgorithm) {
  on_all_shapes([](int rank, Group& group) {
    std::vector<Algorithm> algorithms = {Algorithm::kAuto, Algorithm::kNaive, Algorithm::kFlat,
                                         Algorithm::kHierarchical, Algorithm::kTwoDimensional};
    if (group.topology().node_count() == 1) algorithms.push_back(Algorithm::kSingleNode);
    for (const Algorithm algorithm : algorithms) {
      for (const std::size_t count : kCounts) {
        std::vector<float> values(count, static_cast<float>(rank + 1));
        Collective collective = on(values);
        collective.algorithm = algorithm;
        group.run(collective);
        const auto expected = static_cast<float>(group.size() * (group.size() + 1) / 2);
        ASSERT_EQ(values, std::vector<float>(count, expected)) << to_string(algorithm);
      }
    }
  });
}

TEST_P(GroupOperations, AllocatedMemoryIsReducedLikeAnyOther) {
  on_all_shapes([](int rank, Group& group) {
    constexpr std::size_t kCount = 65537;
    const auto memory = group.allocate(kCount * sizeof(float));
    auto* values = reinterpret_cast<float*>(memory.get());
    ASSERT_EQ(std::count(values, values + kCount, 0.0F), static_cast<std::ptrdiff_t>(kCount));
    const auto sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast}) {
      std::fill_n(values, kCount, static_cast<float>(rank + 1));
      Collective collective;
      collective.kind = kind;
      collective.count = kCount;
      collective.output = memory.get();
      group.run(collective);
      const float expected = kind == OpKind::kBroadcast ? 1.0F : sum;
      ASSERT_EQ(std::count(values, values + kCount, expected), static_cast<std::ptrdiff_t>(kCount));
    }
  });
}

TEST_P(GroupOperations, AverageOfIntegersIsDividedOnceTowardZero) {
  on_all_shapes([](int rank, Group& group) {
    for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kHierarchical}) {
      std::vector<std::int32_t> values = {-7 - rank, 10 * rank + 3, 1};
      Collective collective;
      collective.dtype = DataType::kInt32;
      collective.reduce_op = ReduceOp::kAvg;
      collective.count = values.size();
      collective.output = bytes_of(values);
      collective.algorithm = algorithm;
      group.run(collective);
      const int n = group.size();
      const int ranks = n * (n - 1) / 2;
      ASSERT_EQ(values,
                (std::vector<std::int32_t>{(-7 * n - ranks) / n, (10 * ranks + 3 * n) / n, 1}));
    }
  });
}

TEST_P(GroupOperations, AverageOfFloats) {
  on_all_shapes([](int rank, Group& group) {
    std::vector<float> values(1000, static_cast<float>(rank));
    Collective collective = on(values);
    collective.reduce_op = ReduceOp::kAvg;
    group.run(collective);
    const double mean = (group.size() - 1) / 2.0;
    for (const float value : values) {
      ASSERT_NEAR(value, mean,
                  test::sum_tolerance(DataType::kFloat32, WireFormat::kNative, group.size(), mean));
    }
  });
}

TEST_P(GroupOperations, ReduceChangesTheRootOnly) {
  on_all_shapes([](int rank, Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t count : kCounts) {
        std::vector<float> values(count, static_cast<float>(rank + 1));
        Collective collective = on(values, OpKind::kReduce);
        collective.root = root;
        group.run(collective);
        const int sum = group.size() * (group.size() + 1) / 2;
        const auto expected = static_cast<float>(rank == root ? sum : rank + 1);
        ASSERT_EQ(values, std::vector<float>(count, expected));
      }
    }
  });
}

TEST_P(GroupOperations, ReduceScatter) {
  on_all_shapes([](int rank, Group& group) {
    for (const std::size_t count : kCounts) {
      const auto ranks = static_cast<std::size_t>(group.size());
      std::vector<float> input(count * ranks);
      for (std::size_t i = 0; i < input.size(); ++i) {
        input[i] = static_cast<float>(i / std::max<std::size_t>(1, count) + 1);
      }
      const std::vector<float> before = input;
      std::vector<float> output(count);
      Collective collective = on(output, OpKind::kReduceScatter);
      collective.input = bytes_of(input);
      group.run(collective);
      ASSERT_EQ(output, std::vector<float>(count, static_cast<float>((rank + 1) * group.size())));
      ASSERT_EQ(input, before);
    }
  });
}

TEST_P(GroupOperations, AllGather) {
  on_all_shapes([](int rank, Group& group) {
    for (const std::size_t count : kCounts) {
      const std::vector<float> input(count, static_cast<float>(rank));
      std::vector<float> output(count * static_cast<std::size_t>(group.size()), -1);
      Collective collective = on(output, OpKind::kAllGather);
      collective.count = count;
      collective.input = bytes_of(input);
      group.run(collective);
      for (std::size_t i = 0; i < output.size(); ++i) {
        ASSERT_EQ(output[i], static_cast<float>(i / count));
      }
    }
  });
}

TEST_P(GroupOperations, AllGatherOfPartsOfDifferentSize) {
  on_all_shapes([](int rank, Group& group) {
    for (const std::size_t unit : kCounts) {
      // Rank r brings r units, rank 0 nothing.
      const std::vector<float> input(unit * static_cast<std::size_t>(rank),
                                     static_cast<float>(rank));
      Collective collective;
      collective.kind = OpKind::kAllGather;
      std::vector<float> expected;
      for (int other = 0; other < group.size(); ++other) {
        const std::size_t count = unit * static_cast<std::size_t>(other);
        collective.receive_counts.push_back(count);
        expected.insert(expected.end(), count, static_cast<float>(other));
      }
      std::vector<float> output(expected.size(), -1);
      collective.input = bytes_of(input);
      collective.output = bytes_of(output);
      group.run(collective);
      ASSERT_EQ(output, expected);
    }
  });
}

TEST_P(GroupOperations, PreparesWithWhatAnEarlierOperationBrought) {
  on_all_shapes([](int rank, Group& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::uint8_t mine = static_cast<std::uint8_t>(3 * rank);
    std::vector<std::uint8_t> counts(ranks, 99);
    Collective first;
    first.kind = OpKind::kAllGather;
    first.dtype = DataType::kUInt8;
    first.count = 1;
    first.input = reinterpret_cast<const std::byte*>(&mine);
    first.output = bytes_of(counts);
    const std::vector<float> input(mine, static_cast<float>(rank));
    std::vector<float> output;
    Collective second;
    second.kind = OpKind::kAllGather;
    second.prepare = [&](Collective& collective) {
      std::size_t total = 0;
      for (const std::uint8_t count : counts) {
        collective.receive_counts.push_back(count);
        total += count;
      }
      output.assign(total, -1);
      collective.input = bytes_of(input);
      collective.output = bytes_of(output);
    };
    std::vector<float> sum(7, 1);
    const auto sizes_done = group.submit(first);
    const auto values_done = group.submit(second);
    const auto sum_done = group.submit(on(sum));  // what comes after is not in the way
    values_done->wait();
    sum_done->wait();
    std::vector<float> expected;
    for (std::size_t other = 0; other < ranks; ++other) {
      expected.insert(expected.end(), 3 * other, static_cast<float>(other));
    }
    ASSERT_EQ(output, expected);
    ASSERT_EQ(sum, std::vector<float>(7, static_cast<float>(ranks)));
  });
}

TEST_P(GroupOperations, BroadcastFromEveryRoot) {
  on_all_shapes([](int rank, Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{700'001}}) {
        std::vector<float> values(count, static_cast<float>(rank));
        Collective collective = on(values, OpKind::kBroadcast);
        collective.root = root;
        group.run(collective);
        ASSERT_EQ(values, std::vector<float>(count, static_cast<float>(root)));
      }
    }
  });
}

TEST_P(GroupOperations, GatherAndScatter) {
  on_all_shapes([](int rank, Group& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t count : kCounts) {
        std::vector<float> part(count, static_cast<float>(rank + 10));
        std::vector<float> all(rank == root ? count * ranks : 0);
        Collective gather = on(part, OpKind::kGather);
        gather.root = root;
        gather.output = bytes_of(all);
        group.run(gather);
        for (std::size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(all[i], static_cast<float>(i / count + 10));
        }
        std::vector<float> back(count, -1);
        Collective scatter = on(back, OpKind::kScatter);
        scatter.root = root;
        scatter.input = bytes_of(all);
        group.run(scatter);
        ASSERT_EQ(back, part);
      }
    }
  });
}

TEST_P(GroupOperations, AllToAllWithPartsOfDifferentSize) {
  on_all_shapes([](int rank, Group& group) {
    // Rank a sends a + 2b elements of value 100a + b to rank b.
    Collective collective;
    collective.kind = OpKind::kAllToAll;
    std::vector<float> send;
    std::vector<float> expected;
    for (int peer = 0; peer < group.size(); ++peer) {
      const auto to = static_cast<std::size_t>(rank + 2 * peer);
      const auto from = static_cast<std::size_t>(peer + 2 * rank);
      collective.send_counts.push_back(to);
      collective.receive_counts.push_back(from);
      send.insert(send.end(), to, static_cast<float>(100 * rank + peer));
      expected.insert(expected.end(), from, static_cast<float>(100 * peer + rank));
    }
    std::vector<float> receive(expected.size());
    collective.input = bytes_of(send);
    collective.output = bytes_of(receive);
    group.run(collective);
    ASSERT_EQ(receive, expected);
  });
}

TEST_P(GroupOperations, AllToAllWithEqualPartsInPlace) {
  on_all_shapes([](int rank, Group& group) {
    std::vector<float> values(static_cast<std::size_t>(group.size()) * 5, static_cast<float>(rank));
    Collective collective = on(values, OpKind::kAllToAll);
    collective.count = 5;
    group.run(collective);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i / 5));
  });
}

// A buffer per rank, each with its own memory.
struct Apart {
  Apart(std::size_t ranks, std::size_t count) : values(ranks, std::vector<float>(count, -1)) {}
  std::vector<std::byte*> pointers() {
    std::vector<std::byte*> result;
    for (auto& part : values) result.push_back(bytes_of(part));
    return result;
  }
  std::vector<const std::byte*> inputs() {
    const auto all = pointers();
    return {all.begin(), all.end()};
  }
  std::vector<std::vector<float>> values;
};

TEST_P(GroupOperations, PartsThatLieApart) {
  on_all_shapes([](int rank, Group& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    for (const std::size_t count : kCounts) {
      Apart received(ranks, count);
      Apart numbers(ranks, count);
      for (std::size_t r = 0; r < ranks; ++r) {
        numbers.values[r].assign(count, static_cast<float>(r));
      }
      std::vector<float> mine(count, static_cast<float>(rank));
      Collective collective = on(mine, OpKind::kAllGather);
      collective.output_parts = received.pointers();
      group.run(collective);
      ASSERT_EQ(received.values, numbers.values);

      collective = on(mine, OpKind::kScatter);
      collective.input_parts = numbers.inputs();
      std::fill(mine.begin(), mine.end(), -1.0F);
      group.run(collective);
      ASSERT_EQ(mine, std::vector<float>(count, static_cast<float>(rank)));

      collective = on(mine, OpKind::kGather);
      Apart gathered(ranks, count);
      collective.output_parts = gathered.pointers();
      group.run(collective);
      if (rank == 0) {
        ASSERT_EQ(gathered.values, numbers.values);
      }

      collective = on(mine, OpKind::kReduceScatter);
      collective.input_parts = numbers.inputs();
      group.run(collective);
      ASSERT_EQ(mine, std::vector<float>(count, static_cast<float>(rank * group.size())));

      // In place: what comes from a rank replaces what went to it.
      for (std::size_t p = 0; p < ranks; ++p) {
        numbers.values[p].assign(count,
                                 static_cast<float>(p + ranks * static_cast<std::size_t>(rank)));
      }
      collective = Collective();
      collective.kind = OpKind::kAllToAll;
      collective.count = count;
      collective.input_parts = numbers.inputs();
      collective.output_parts = numbers.pointers();
      group.run(collective);
      for (std::size_t p = 0; p < ranks; ++p) {
        const auto value = static_cast<float>(static_cast<std::size_t>(rank) + ranks * p);
        ASSERT_EQ(numbers.values[p], std::vector<float>(count, value));
      }
    }
  });
}

TEST_P(GroupOperations, SendAndReceiveLeaveTheSequenceAlone) {
  on_all_shapes([](int rank, Group& group) {
    if (group.size() < 2) return;
    const int last = group.size() - 1;
    for (int round = 0; round < 3; ++round) {
      std::vector<float> values(1000, static_cast<float>(rank + round));
      if (rank == 0 || rank == last) {
        Collective collective = on(values, rank == 0 ? OpKind::kSend : OpKind::kRecv);
        collective.root = rank == 0 ? last : 0;
        collective.tag = 7;
        group.run(collective);
        ASSERT_EQ(values, std::vector<float>(1000, static_cast<float>(round)));
      }
      std::vector<float> ones(3, 1);
      group.run(on(ones));  // all ranks still agree about the sequence
      ASSERT_EQ(ones[0], static_cast<float>(group.size()));
    }
    ASSERT_EQ(group.sequence(), 3U);
  });
}

TEST_P(GroupOperations, BarrierWaitsForAll) {
  for (const auto& nodes : kShapes) {
    GroupMaker maker(nodes, GetParam(), limits());
    std::atomic<int> arrived{0};
    maker.run_ok([&](int rank, Group& group) {
      std::this_thread::sleep_for(std::chrono::milliseconds{3 * rank});
      ++arrived;
      Collective barrier;
      barrier.kind = OpKind::kBarrier;
      group.run(barrier);
      ASSERT_EQ(arrived.load(), group.size());
    });
  }
}

TEST_P(GroupOperations, UnalignedBuffers) {
  on_all_shapes([](int rank, Group& group) {
    std::vector<std::byte> memory(1001 * 4 + 1);
    std::vector<float> values(1001, static_cast<float>(rank + 1));
    std::memcpy(memory.data() + 1, values.data(), 1001 * 4);
    Collective collective = on(values);
    collective.output = memory.data() + 1;
    collective.algorithm = Algorithm::kTwoDimensional;
    group.run(collective);
    std::memcpy(values.data(), memory.data() + 1, 1001 * 4);
    const int sum = group.size() * (group.size() + 1) / 2;
    ASSERT_EQ(values, std::vector<float>(1001, static_cast<float>(sum)));
  });
}

TEST_P(GroupOperations, AsynchronousOperationsRunInCallOrder) {
  on_all_shapes([](int rank, Group& group) {
    // Each doubles what the one before has made: any other order gives other numbers.
    std::vector<float> small(10, static_cast<float>(rank + 1));
    std::vector<float> large(100'000, 1);
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < 4; ++i) {
      operations.push_back(group.submit(on(small)));
      operations.push_back(group.submit(on(large)));
    }
    for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
      (*operation)->wait();
    }
    const int n = group.size();
    ASSERT_EQ(small[0], static_cast<float>(n * (n + 1) / 2 * n * n * n));
    ASSERT_EQ(large[99'999], static_cast<float>(n * n * n * n));
    ASSERT_EQ(group.sequence(), 8U);
  });
}

TEST_P(GroupOperations, TwoThreadsOnOneGroup) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limits());
    std::atomic<int> wrong{0};
    maker.run_ok([&](int rank, Group& group) {
      const auto work = [&] {
        for (int i = 0; i < 2000; ++i) {
          std::vector<float> values(64, static_cast<float>(rank + 1));
          Collective collective = on(values);
          collective.is_async = i % 2 == 0;
          group.submit(collective)->wait();
          wrong += values == std::vector<float>(64, 3.0F) ? 0 : 1;
        }
      };
      std::thread other(work);
      work();
      other.join();
    });
    EXPECT_EQ(wrong.load(), 0);
  }
}

TEST_P(GroupOperations, ShutdownWaitsForWhatWasSubmitted) {
  GroupMaker maker({2, 2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<float> values(1000, static_cast<float>(rank));
    const auto operation = group.submit(on(values));
    group.shutdown();
    group.shutdown();
    ASSERT_TRUE(operation->is_done());
    ASSERT_EQ(values[999], 6.0F);
    ASSERT_THROW(group.submit(on(values)), InvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupOperations,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere, TransportKind::kEncrypted,
                                         TransportKind::kMpi),
                         [](const auto& of) { return test::to_string(of.param); });

}  // namespace
}  // namespace chainmail::ops
