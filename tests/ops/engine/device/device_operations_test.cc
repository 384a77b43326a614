// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A device group's other collectives, transfers, packing and memory; several groups at once,
// several streams, and captures into graphs.

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/engine/device/device_world.h"

namespace chainmail::ops {
namespace {

using test::DeviceRank;
using test::DeviceWorld;
using Floats = std::vector<float>;

std::byte* bytes_of(Floats& data) { return reinterpret_cast<std::byte*>(data.data()); }

void run(DeviceRank& rank, const Collective& collective) {
  rank.device_group.issue(collective, rank.stream)->wait();
}

Collective of_kind(OpKind kind, std::size_t count, Floats& input, Floats& output) {
  Collective collective;
  collective.kind = kind;
  collective.count = count;
  collective.input = bytes_of(input);
  collective.output = bytes_of(output);
  return collective;
}

class DeviceOperations : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, DeviceOperations,
                         testing::Values(std::vector<int>{1}, std::vector<int>{3},
                                         std::vector<int>{2, 2}, std::vector<int>{3, 1}));

TEST_P(DeviceOperations, MoveAndReduce) {
  DeviceWorld world(GetParam());
  const auto n = static_cast<std::size_t>(world.size());
  const auto sum_of_ranks = static_cast<float>(n * (n - 1) / 2);
  world.run_ok([&](DeviceRank& rank) {
    const auto me = static_cast<std::size_t>(rank.rank);
    const auto mine = static_cast<float>(rank.rank);
    const int root = world.size() - 1;
    Floats none;
    {
      Floats data(5, mine);
      Collective broadcast = of_kind(OpKind::kBroadcast, 5, none, data);
      broadcast.root = root;
      run(rank, broadcast);
      EXPECT_EQ(data, Floats(5, static_cast<float>(root)));
    }
    {
      Floats data(5, mine);
      Collective reduce = of_kind(OpKind::kReduce, 5, none, data);
      reduce.root = root;
      run(rank, reduce);
      EXPECT_EQ(data, Floats(5, rank.rank == root ? sum_of_ranks : mine));
    }
    {
      Floats input(3, mine);
      Floats output(3 * n);
      run(rank, of_kind(OpKind::kAllGather, 3, input, output));
      for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(output[r * 3 + 2], static_cast<float>(r));
    }
    {
      Floats input(me + 1, mine);  // of different length on every rank
      Floats output(n * (n + 1) / 2);
      Collective gather = of_kind(OpKind::kAllGather, me + 1, input, output);
      for (std::size_t r = 0; r < n; ++r) gather.receive_counts.push_back(r + 1);
      run(rank, gather);
      EXPECT_EQ(output.front(), 0.0F);
      EXPECT_EQ(output.back(), static_cast<float>(n - 1));
    }
    {
      Floats input(2 * n);
      for (std::size_t r = 0; r < n; ++r) input[2 * r] = input[2 * r + 1] = static_cast<float>(r);
      Floats output(2);
      run(rank, of_kind(OpKind::kReduceScatter, 2, input, output));
      EXPECT_EQ(output, Floats(2, static_cast<float>(n * me)));
      Collective apart = of_kind(OpKind::kReduceScatter, 2, none, output);
      apart.reduce_op = ReduceOp::kAvg;
      for (std::size_t r = n; r-- > 0;) apart.input_parts.push_back(bytes_of(input) + 8 * r);
      run(rank, apart);
      EXPECT_NEAR(output[0], static_cast<float>(n - 1 - me), 1e-5);
    }
    {
      Floats input(2, mine);
      Floats output(2 * n);
      Collective gather = of_kind(OpKind::kGather, 2, input, output);
      gather.root = root;
      run(rank, gather);
      if (rank.rank == root) {
        for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(output[2 * r], static_cast<float>(r));
      }
      Floats back(2, -1);
      Collective scatter = of_kind(OpKind::kScatter, 2, output, back);
      scatter.root = root;
      run(rank, scatter);
      EXPECT_EQ(back, Floats(2, mine));
    }
    {
      Floats input(n);
      for (std::size_t r = 0; r < n; ++r) input[r] = static_cast<float>(10 * me + r);
      Floats output(n);
      run(rank, of_kind(OpKind::kAllToAll, 1, input, output));
      for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(output[r], static_cast<float>(10 * r + me));
    }
    Collective barrier;
    barrier.kind = OpKind::kBarrier;
    run(rank, barrier);
  });
}

TEST(DeviceTransfers, AroundARingTogether) {
  DeviceWorld world({2, 2});
  world.run_ok([&](DeviceRank& rank) {
    Floats out(100, static_cast<float>(rank.rank));
    Floats in(100);
    std::vector<Collective> transfers(2);
    transfers[0].kind = OpKind::kSend;
    transfers[0].root = (rank.rank + 1) % 4;
    transfers[0].input = bytes_of(out);
    transfers[1].kind = OpKind::kRecv;
    transfers[1].root = (rank.rank + 3) % 4;
    transfers[1].output = bytes_of(in);
    for (Collective& transfer : transfers) transfer.count = 100;
    rank.device_group.issue_together(transfers, rank.stream)->wait();
    EXPECT_EQ(in, Floats(100, static_cast<float>((rank.rank + 3) % 4)));
    transfers[1].root = kAnyRank;
    EXPECT_THROW(rank.device_group.issue_together(transfers, rank.stream), InvalidArgument);
  });
}

// Streams of the caller's that know nothing of each other: one collective still follows another.
TEST(DeviceStreams, OneOrderOnSeveralStreams) {
  GroupOptions options;
  options.algorithm = Algorithm::kTwoDimensional;
  options.wire = WireFormat::kFloat16;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    DeviceWorld world({2, 2}, options, {}, seed);
    world.run_ok([&](DeviceRank& rank) {
      DeviceStream other;
      ASSERT_EQ(rank.library.device().create_stream(other), kDeviceSuccess);
      Floats data(3000, 1.0F);
      Collective collective;
      collective.count = data.size();
      collective.output = bytes_of(data);
      collective.wire = options.wire;
      std::shared_ptr<DeviceOperation> last;
      for (int i = 0; i < 4; ++i) {
        last = rank.device_group.issue(collective, i % 2 == 0 ? rank.stream : other);
      }
      last->wait();
      EXPECT_EQ(data, Floats(3000, 256.0F));
    });
  }
}

// Data that are to be encrypted between nodes go there by way of the host, or not at all.
TEST(DeviceEncryption, NcclCarriesNothingBetweenNodes) {
  const auto is_refused = [](DeviceRank& rank, const Collective& collective) {
    try {
      rank.device_group.issue(collective, rank.stream)->wait();
      return false;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("is to encrypt data between nodes, and NCCL"),
                std::string::npos)
          << error.what();
      return true;
    }
  };
  GroupOptions options;
  options.encryption = Encryption::kEncrypt;
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kFlat, Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
    options.algorithm = algorithm;
    DeviceWorld({2, 2}, options).run_ok([&](DeviceRank& rank) {
      Floats data(1000, 1.0F);
      EXPECT_TRUE(is_refused(rank, of_kind(OpKind::kAllReduce, data.size(), data, data)));
      EXPECT_TRUE(is_refused(rank, of_kind(OpKind::kBroadcast, data.size(), data, data)));
      Collective transfer = of_kind(rank.rank < 2 ? OpKind::kSend : OpKind::kRecv, 10, data, data);
      transfer.root = (rank.rank + 2) % 4;
      EXPECT_TRUE(is_refused(rank, transfer));
      EXPECT_EQ(data, Floats(1000, 1.0F));
    });
  }
  options.algorithm = Algorithm::kAuto;
  DeviceWorld({2}, options).run_ok([&](DeviceRank& rank) {  // it stays on the node
    Floats data(1000, 1.0F);
    EXPECT_FALSE(is_refused(rank, of_kind(OpKind::kAllReduce, data.size(), data, data)));
    EXPECT_EQ(data, Floats(1000, 2.0F));
  });
  DeviceGroupOptions on_host;
  on_host.crosses_on_host = true;
  options.algorithm = Algorithm::kHierarchical;
  DeviceWorld({2, 2}, options, on_host).run_ok([&](DeviceRank& rank) {
    Floats data(1000, 1.0F);
    EXPECT_FALSE(is_refused(rank, of_kind(OpKind::kAllReduce, data.size(), data, data)));
    EXPECT_EQ(data, Floats(1000, 4.0F));
    Floats none;
    EXPECT_FALSE(is_refused(rank, of_kind(OpKind::kAllReduce, 0, none, none)));
    try {
      rank.device_group.issue(of_kind(OpKind::kBroadcast, 1000, data, data), rank.stream)->wait();
      ADD_FAILURE() << "NCCL carries a broadcast";
    } catch (const InvalidArgument& error) {  // who uses non_cuda_aware is not told to use it
      EXPECT_EQ(std::string(error.what()).find("or the algorithm non_cuda_aware"),
                std::string::npos)
          << error.what();
    }
  });
}

// Groups are issued in the same order by all ranks, and end in whatever order they can.
TEST(DeviceStreams, SeveralGroupsInFlight) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    DeviceWorld world({2, 2}, {}, {}, seed);
    std::vector<std::unique_ptr<test::GroupMaker>> makers;
    std::vector<std::shared_ptr<LocalRendezvous>> keys;
    for (int g = 0; g < 3; ++g) {
      GroupOptions options;
      options.name = "group" + std::to_string(g);
      options.algorithm = Algorithm::kHierarchical;
      options.wire = WireFormat::kBFloat16;
      makers.push_back(std::make_unique<test::GroupMaker>(
          std::vector<int>{2, 2}, test::TransportKind::kReference, options));
      keys.push_back(std::make_shared<LocalRendezvous>());
    }
    world.run_ok([&](DeviceRank& rank) {
      std::vector<std::shared_ptr<DeviceGroup>> groups;
      std::vector<DeviceStream> streams(makers.size());
      std::vector<Floats> data(makers.size(), Floats(2000, 1.0F));
      for (std::size_t g = 0; g < makers.size(); ++g) {
        ASSERT_EQ(rank.library.device().create_stream(streams[g]), kDeviceSuccess);
        groups.push_back(
            create_device_group(rank.library, makers[g]->join(rank.rank), keys[g], {}));
      }
      std::vector<std::shared_ptr<DeviceOperation>> operations;
      for (int round = 0; round < 3; ++round) {
        for (std::size_t g = 0; g < groups.size(); ++g) {
          Collective collective;
          collective.count = data[g].size();
          collective.output = bytes_of(data[g]);
          collective.wire = WireFormat::kBFloat16;
          operations.push_back(groups[g]->issue(collective, streams[g]));
        }
      }
      for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
        (*operation)->wait();
      }
      for (const Floats& floats : data) EXPECT_EQ(floats, Floats(2000, 64.0F));
    });
  }
}

TEST(DeviceCapture, NeedsToHaveBeenPreparedAndThenAllocatesNothing) {
  GroupOptions options;
  options.algorithm = Algorithm::kTwoDimensional;
  options.wire = WireFormat::kFloat16;
  DeviceWorld world({2, 2}, options);
  world.run_ok([&](DeviceRank& rank) {
    Floats data(3000, 1.0F);
    Collective collective;
    collective.count = data.size();
    collective.output = bytes_of(data);
    collective.wire = options.wire;
    Collective small = collective;
    small.count = 1;
    rank.device_group.issue(small, rank.stream)->wait();
    data.assign(3000, 1.0F);

    DeviceStream captured;
    ASSERT_EQ(rank.library.device().create_stream(captured), kDeviceSuccess);
    rank.library.device().begin_capture(captured);
    EXPECT_THROW(rank.device_group.issue(collective, captured), InvalidArgument);
    rank.library.device().end_capture();

    rank.device_group.prepare(collective);
    // As in a program: what was issued before is on another stream, and the capture may not wait
    // for it.
    ASSERT_EQ(rank.library.device().create_stream(captured), kDeviceSuccess);
    rank.library.device().begin_capture(captured);
    const auto operation = rank.device_group.issue(collective, captured);
    EXPECT_TRUE(operation->is_done());
    operation->wait();
    rank.library.device().end_capture();

    // The next one outside does not wait for the capture.
    Floats more(3000, 1.0F);
    collective.output = bytes_of(more);
    rank.device_group.issue(collective, rank.stream)->wait();
    EXPECT_EQ(more, Floats(3000, 4.0F));
    rank.device_group.shutdown();
    EXPECT_EQ(rank.library.nccl().graph_waits(), 0) << "the graph may live longer than the group";
    EXPECT_THROW(rank.device_group.issue(collective, rank.stream), InvalidArgument);
  });
}

TEST(DevicePacking, ThereAndBack) {
  DeviceWorld world({1});
  world.run_ok([&](DeviceRank& rank) {
    Floats first(10000, 3.0F);
    std::vector<double> second(77, -8.0);
    const std::vector<PackedTensor> tensors = {
        {first.data(), DataType::kFloat32, first.size(), 0},
        {second.data(), DataType::kFloat64, second.size(), 10000}};
    const auto pack = rank.device_group.make_pack(tensors);
    std::vector<std::uint16_t> buffer(10077);
    pack->pack(buffer.data(), DataType::kFloat16, 0.5, nullptr, rank.stream);
    pack->unpack(buffer.data(), DataType::kFloat16, 4.0, nullptr, rank.stream);
    Floats done(1, 0.0F);
    rank.all_reduce({}, bytes_of(done), 1);  // after both, on their stream
    EXPECT_EQ(buffer[0], 0x3e00);
    EXPECT_EQ(first, Floats(10000, 6.0F));
    EXPECT_EQ(second, std::vector<double>(77, -16.0));
  });
}

TEST(DeviceMemory, IsGivenBack) {
  std::shared_ptr<test::FakeMachine> machine;
  std::size_t streams = 0;
  GroupOptions options;
  options.algorithm = Algorithm::kHierarchical;
  options.wire = WireFormat::kFloat16;
  DeviceWorld world({2, 2}, options);
  machine = world.cluster().machine;
  streams = machine->live_streams();
  world.run_ok([&](DeviceRank& rank) {
    auto memory = rank.device_group.allocate(4000);
    Collective sum;
    sum.wire = options.wire;
    rank.all_reduce(sum, memory.get(), 1000);
    auto registered = rank.device_group.allocate(4000);
    rank.all_reduce(sum, registered.get(), 1000);
    rank.device_group.shutdown();
    rank.library.device().destroy_stream(rank.stream);
  });
  EXPECT_EQ(machine->live_memory(), 0U);
  EXPECT_EQ(machine->live_events(), 0U);
  EXPECT_EQ(machine->live_streams(), streams);
}

}  // namespace
}  // namespace chainmail::ops
