// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that disagree: MismatchError on all of them, soon, with both sides named.

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>

#include "tests/ops/comm/rank_threads.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using testing::is_a;
using testing::Ops;
using testing::run_ranks_catching;
using testing::what;
using testing::Wire;

class MismatchTest : public ::testing::TestWithParam<Wire> {
 protected:
  using Body = std::function<void(P2pComm&, Ops&)>;

  // Every rank must soon get a MismatchError that contains `words`.
  void expect_mismatch(int size, const Body& body, const std::vector<std::string>& words) {
    CommWorld world(GetParam(), size);
    std::vector<std::unique_ptr<Ops>> ops;
    std::vector<std::unique_ptr<P2pComm>> comms;
    for (int rank = 0; rank < size; ++rank) {
      ops.push_back(std::make_unique<Ops>(std::chrono::seconds{20}));
      comms.push_back(world.make(rank));
    }
    const Stopwatch watch;
    std::barrier all_through(size);
    const auto errors = run_ranks_catching(size, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      // Agreement first, so that connections exist as in the middle of a job. All are through with
      // it before one of them can fail, which would end it for who is late.
      try {
        comms[i]->barrier(ops[i]->next(OpKind::kBarrier, 0));
      } catch (...) {
        all_through.arrive_and_drop();
        throw;
      }
      all_through.arrive_and_wait();
      body(*comms[i], *ops[i]);
    });
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{4}))
        << "far below the time limit; 20 ms when idle";
    for (int rank = 0; rank < size; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      EXPECT_TRUE(is_a<MismatchError>(errors[i])) << "rank " << rank << ": " << what(errors[i]);
      EXPECT_TRUE(is_a<MismatchError>(ops[i]->failure().error())) << "rank " << rank;
      for (const std::string& word : words) {
        EXPECT_NE(what(errors[i]).find(word), std::string::npos)
            << "no \"" << word << "\" in: " << what(errors[i]);
      }
    }
  }

  static void all_reduce(P2pComm& comm, const OpContext& context) {
    const auto count = static_cast<std::size_t>(context.header.count);
    std::vector<std::byte> data(count * size_of(context.header.dtype));
    comm.all_reduce(data.data(), count,
                    {context.header.dtype, context.header.reduce_op, 1.0, WireFormat::kNative},
                    context);
  }
};

TEST_P(MismatchTest, Count) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{1'000'000}}) {
    expect_mismatch(2,
                    [&](P2pComm& comm, Ops& ops) {
                      const std::size_t own = comm.rank() == 0 ? count : count + 1;
                      all_reduce(comm, ops.next(OpKind::kAllReduce, own, DataType::kFloat32));
                    },
                    {"rank 0", "rank 1", std::to_string(count) + " float32",
                     std::to_string(count + 1) + " float32"});
  }
}

TEST_P(MismatchTest, NoElementsOnOneRank) {
  // Large calls only ask: nobody may leave before it has seen the others' headers.
  for (const std::size_t count : {std::size_t{1}, std::size_t{1'000'000}}) {
    expect_mismatch(3,
                    [&](P2pComm& comm, Ops& ops) {
                      const std::size_t own = comm.rank() == 1 ? 0 : count;
                      all_reduce(comm, ops.next(OpKind::kAllReduce, own, DataType::kFloat32));
                      comm.barrier(ops.next(OpKind::kBarrier, 0));
                    },
                    {"rank 1", "0 float32", std::to_string(count) + " float32"});
  }
}

TEST_P(MismatchTest, NoElementsOnAnyRank) {
  using Call = std::function<void(P2pComm&, const OpContext&)>;
  const std::vector<std::span<std::byte>> parts(4);
  const std::vector<std::span<const std::byte>> inputs(4);
  const std::vector<std::pair<OpKind, Call>> calls{
      {OpKind::kAllReduce, [](P2pComm& comm, const OpContext& c) { all_reduce(comm, c); }},
      {OpKind::kReduceScatter,
       [&](P2pComm& comm, const OpContext& c) { comm.reduce_scatter(inputs, nullptr, {}, c); }},
      {OpKind::kAllGather, [&](P2pComm& comm, const OpContext& c) { comm.all_gather(parts, c); }},
      {OpKind::kBroadcast,
       [](P2pComm& comm, const OpContext& c) { comm.broadcast(nullptr, 0, 0, c); }}};
  for (const auto& [kind, call] : calls) {
    SCOPED_TRACE(to_string(kind));
    expect_mismatch(4,
                    [&, kind = kind, &call = call](P2pComm& comm, Ops& ops) {
                      OpContext context = ops.next(kind, 0, DataType::kFloat32);
                      context.header.layout = comm.rank() == 3 ? 8 : 7;
                      call(comm, context);
                      comm.barrier(ops.next(OpKind::kBarrier, 0));
                    },
                    {to_string(kind), "layout 00000007", "layout 00000008", "rank 3"});
  }
}

// Rank 1 has nothing for others, or gets nothing.
TEST_P(MismatchTest, NoElementsOfOneRank) {
  using Call =
      std::function<void(P2pComm&, std::span<const std::span<std::byte>>, const OpContext&)>;
  const std::vector<std::pair<OpKind, Call>> calls{
      {OpKind::kAllGather, [](P2pComm& comm, std::span<const std::span<std::byte>> parts,
                              const OpContext& context) { comm.all_gather(parts, context); }},
      {OpKind::kReduceScatter,
       [](P2pComm& comm, std::span<const std::span<std::byte>> parts, const OpContext& context) {
         const std::vector<std::span<const std::byte>> inputs(parts.begin(), parts.end());
         comm.reduce_scatter(inputs, parts[static_cast<std::size_t>(comm.rank())].data(),
                             {DataType::kFloat32, ReduceOp::kSum, 1.0, WireFormat::kNative},
                             context);
       }}};
  for (const auto& [kind, call] : calls) {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1'000'000}}) {
      SCOPED_TRACE(std::string(to_string(kind)) + " of " + std::to_string(bytes) + " bytes");
      std::vector<std::byte> data(4 * 4 * bytes);
      expect_mismatch(4,
                      [&, kind = kind, &call = call](P2pComm& comm, Ops& ops) {
                        OpContext context = ops.next(kind, 0, DataType::kFloat32);
                        const int other = kind == OpKind::kAllGather ? 1 : 2;
                        context.header.layout = comm.rank() == other ? 8 : 7;
                        std::vector<std::span<std::byte>> parts(4);
                        for (std::size_t r = 0; r < parts.size(); ++r) {
                          if (r == 1) continue;
                          parts[r] = std::span(data).subspan(
                              (static_cast<std::size_t>(comm.rank()) * 4 + r) * bytes, bytes);
                        }
                        call(comm, parts, context);
                      },
                      {to_string(kind), "layout 00000007", "layout 00000008"});
    }
  }
}

TEST_P(MismatchTest, Type) {
  expect_mismatch(3,
                  [](P2pComm& comm, Ops& ops) {
                    all_reduce(comm,
                               ops.next(OpKind::kAllReduce, 100,
                                        comm.rank() == 2 ? DataType::kInt32 : DataType::kFloat32));
                  },
                  {"float32", "int32", "rank 2"});
}

TEST_P(MismatchTest, Operation) {
  expect_mismatch(2,
                  [](P2pComm& comm, Ops& ops) {
                    all_reduce(comm, ops.next(OpKind::kAllReduce, 100, DataType::kFloat32,
                                              comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax));
                  },
                  {"sum", "max"});
}

TEST_P(MismatchTest, Layout) {
  expect_mismatch(2,
                  [](P2pComm& comm, Ops& ops) {
                    OpContext context = ops.next(OpKind::kAllReduce, 100, DataType::kFloat32);
                    context.header.layout = static_cast<std::uint32_t>(7 + comm.rank());
                    all_reduce(comm, context);
                  },
                  {"layout 00000007", "layout 00000008"});
}

TEST_P(MismatchTest, OrderOfTwoCalls) {
  expect_mismatch(4,
                  [](P2pComm& comm, Ops& ops) {
                    const OpContext reduce = ops.next(OpKind::kAllReduce, 1000, DataType::kFloat32);
                    const OpContext gather = ops.next(OpKind::kAllGather, 8);
                    std::vector<std::byte> data(32);
                    const std::vector<std::size_t> bounds{0, 8, 16, 24, 32};
                    const auto parts = parts_of(data.data(), bounds);
                    if (comm.rank() == 3) comm.all_gather(parts, gather);
                    all_reduce(comm, reduce);
                    if (comm.rank() != 3) comm.all_gather(parts, gather);
                    comm.barrier(ops.next(OpKind::kBarrier, 0));
                  },
                  {"all_reduce #1", "all_gather #2", "rank 3"});
}

TEST_P(MismatchTest, TwoReceiversThatWaitForEachOther) {
  // Nobody sends anything: each takes the other for the root.
  expect_mismatch(2,
                  [](P2pComm& comm, Ops& ops) {
                    OpContext context = ops.next(OpKind::kBroadcast, 100);
                    const int root = 1 - comm.rank();
                    context.header.layout = static_cast<std::uint32_t>(root);
                    std::vector<std::byte> data(100);
                    comm.broadcast(data.data(), data.size(), root, context);
                  },
                  {"broadcast #1", "layout 00000000", "layout 00000001"});
}

TEST_P(MismatchTest, TwoRootsThatSendALongMessage) {
  expect_mismatch(2,
                  [](P2pComm& comm, Ops& ops) {
                    OpContext context = ops.next(OpKind::kBroadcast, 4 * kEagerBytes);
                    context.header.layout = static_cast<std::uint32_t>(comm.rank());
                    std::vector<std::byte> data(4 * kEagerBytes);
                    comm.broadcast(data.data(), data.size(), comm.rank(), context);
                    comm.barrier(ops.next(OpKind::kBarrier, 0));
                  },
                  {"broadcast #1", "rank 0", "rank 1"});
}

TEST_P(MismatchTest, LengthOfAMessageBetweenTwoRanks) {
  for (const std::size_t bytes : {std::size_t{100}, 2 * kEagerBytes}) {
    CommWorld world(GetParam(), 2);
    const auto errors = run_ranks_catching(2, [&](int rank) {
      const auto transport = world.make_transport(rank);
      std::vector<std::byte> data(bytes + 4);
      if (rank == 0) {
        testing::send(*transport, data.data(), bytes, 1, 3);
        testing::receive(*transport, data.data(), 1, 1, 4);  // rank 1's error comes instead
      } else {
        testing::receive(*transport, data.data(), bytes + 4, 0, 3);
      }
    });
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<MismatchError>(error)) << what(error);
      for (const auto& part : {std::string("rank 0"), std::string("rank 1"), std::to_string(bytes),
                               std::to_string(bytes + 4)}) {
        EXPECT_NE(what(error).find(part), std::string::npos) << what(error);
      }
    }
  }
}

TEST_P(MismatchTest, NoByteOfAWrongMessageIsUsed) {
  CommWorld world(GetParam(), 2);
  std::vector<std::byte> target(1000, std::byte{42});
  const auto errors = run_ranks_catching(2, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops(std::chrono::seconds{10});
    OpContext context = ops.next(OpKind::kBroadcast, 1000);
    context.header.layout = static_cast<std::uint32_t>(rank);
    std::vector<std::byte> data(1000, std::byte{1});
    comm->broadcast(rank == 0 ? data.data() : target.data(), 1000, 0, context);
    comm->barrier(ops.next(OpKind::kBarrier, 0));
  });
  EXPECT_TRUE(is_a<MismatchError>(errors[1]));
  EXPECT_TRUE(target == std::vector<std::byte>(1000, std::byte{42}));
}

TEST_P(MismatchTest, TheCommStaysDeadWithTheSameError) {
  CommWorld world(GetParam(), 2);
  run_ranks_catching(2, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops(std::chrono::seconds{10});
    std::string first;
    try {
      all_reduce(*comm, ops.next(OpKind::kAllReduce, 10 + static_cast<std::size_t>(rank)));
      ADD_FAILURE() << "no error";
    } catch (const MismatchError& error) {
      first = error.what();
    }
    try {
      comm->barrier(ops.next(OpKind::kBarrier, 0));
      ADD_FAILURE() << "no error";
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.what(), first);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, MismatchTest,
                         ::testing::Values(Wire::kThread, Wire::kShm, Wire::kTcp,
                                           Wire::kAuthenticated, Wire::kEncrypted, Wire::kMpi),
                         [](const auto& param) { return to_string(param.param); });

}  // namespace
}  // namespace chainmail::ops
