// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Broadcast, gather, all-to-all, send and receive, barrier over messages, on both transports.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "tests/ops/comm/rank_threads.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using testing::Ops;
using testing::run_ranks;
using testing::Wire;
using Bytes = std::vector<std::byte>;

// Every byte depends on the rank and its place, so that a swapped or shifted part shows.
Bytes pattern(int rank, std::size_t bytes) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] =
        static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(rank) * 97) & 255);
  }
  return data;
}

P2pOptions tiny_pieces() {
  P2pOptions options;
  options.piece_bytes = 700;
  options.max_direct_ranks = 2;
  return options;
}

// Longer than an eager message, too, where that is not hundreds of pieces.
std::vector<std::size_t> sizes_for(const P2pComm& comm) {
  std::vector<std::size_t> sizes = {0, 1, 7, 1000, 20'011};
  if (comm.size() < 8) sizes.push_back(kEagerBytes + 3);
  return sizes;
}

class P2pMoveTest : public ::testing::TestWithParam<Wire> {
 protected:
  template <typename Body>
  void with_worlds(const Body& body) {
    for (const int size : {1, 2, 3, 4, 8}) {
      for (const bool is_tiny : {false, true}) {
        CommWorld world(GetParam(), size, is_tiny ? tiny_pieces() : P2pOptions{});
        run_ranks(size, [&](int rank) {
          const auto comm = world.make(rank);
          Ops ops;
          body(*comm, ops);
        });
      }
    }
  }
};

TEST_P(P2pMoveTest, BroadcastGivesTheRootsBytesFromEveryRoot) {
  with_worlds([](P2pComm& comm, Ops& ops) {
    for (const std::size_t bytes : sizes_for(comm)) {
      for (int root = 0; root < comm.size(); root += 2) {
        Bytes data = pattern(comm.rank(), bytes);
        comm.broadcast(data.data(), bytes, root, ops.next(OpKind::kBroadcast, bytes));
        EXPECT_TRUE(data == pattern(root, bytes)) << bytes << " bytes from " << root;
      }
    }
  });
}

TEST_P(P2pMoveTest, AllGatherPutsEveryPartInItsPlace) {
  with_worlds([](P2pComm& comm, Ops& ops) {
    for (const std::size_t bytes : sizes_for(comm)) {
      std::vector<std::size_t> bounds{0};
      for (int rank = 0; rank < comm.size(); ++rank) {
        bounds.push_back(bounds.back() + (rank % 3 == 2 ? 0 : bytes + bounds.size() % 2));
      }
      Bytes data(bounds.back());
      const auto part = [&](int rank) {
        const auto i = static_cast<std::size_t>(rank);
        return pattern(rank, bounds[i + 1] - bounds[i]);
      };
      const auto begin_of = [&](int rank) {
        return data.begin() + static_cast<std::ptrdiff_t>(bounds[static_cast<std::size_t>(rank)]);
      };
      const Bytes own = part(comm.rank());
      std::copy(own.begin(), own.end(), begin_of(comm.rank()));
      comm.all_gather(parts_of(data.data(), bounds), ops.next(OpKind::kAllGather, bytes));
      for (int rank = 0; rank < comm.size(); ++rank) {
        const Bytes want = part(rank);
        EXPECT_TRUE(std::equal(want.begin(), want.end(), begin_of(rank))) << "part " << rank;
      }
    }
  });
}

TEST_P(P2pMoveTest, AllToAllExchangesUnevenParts) {
  with_worlds([](P2pComm& comm, Ops& ops) {
    const auto length = [](int from, int to) {
      return static_cast<std::size_t>((from * 5 + to * 3) % 7) * 1111;
    };
    std::vector<std::size_t> send_bounds{0};
    std::vector<std::size_t> receive_bounds{0};
    Bytes send;
    Bytes want;
    for (int peer = 0; peer < comm.size(); ++peer) {
      const Bytes out = pattern(comm.rank() * 8 + peer, length(comm.rank(), peer));
      const Bytes in = pattern(peer * 8 + comm.rank(), length(peer, comm.rank()));
      send.insert(send.end(), out.begin(), out.end());
      want.insert(want.end(), in.begin(), in.end());
      send_bounds.push_back(send.size());
      receive_bounds.push_back(want.size());
    }
    Bytes receive(want.size());
    comm.all_to_all(parts_of<const std::byte>(send.data(), send_bounds),
                    parts_of(receive.data(), receive_bounds), ops.next(OpKind::kAllToAll, 0));
    EXPECT_TRUE(receive == want);
  });
}

TEST_P(P2pMoveTest, MessagesMeetByTagAndInOrder) {
  CommWorld world(GetParam(), 2);
  run_ranks(2, [&](int rank) {
    const auto transport = world.make_transport(rank);
    const auto send = [&](int seed, std::size_t bytes, std::uint32_t tag) {
      const Bytes data = pattern(seed, bytes);
      testing::send(*transport, data.data(), bytes, 1, tag);
    };
    const auto receive = [&](int seed, std::size_t bytes, std::uint32_t tag) {
      Bytes data(bytes);
      testing::receive(*transport, data.data(), bytes, 0, tag);
      EXPECT_TRUE(data == pattern(seed, bytes)) << bytes << " bytes, tag " << tag;
    };
    if (rank == 0) {
      send(1, 100, 5);
      send(2, 100, 5);
      send(3, 0, 9);
      send(4, 3 * kEagerBytes, 7);
    } else {
      receive(3, 0, 9);
      receive(1, 100, 5);
      receive(2, 100, 5);
      receive(4, 3 * kEagerBytes, 7);
    }
  });
}

TEST_P(P2pMoveTest, BarrierLetsNobodyThroughBeforeAllHaveCome) {
  for (const int size : {1, 2, 3, 4, 8}) {
    CommWorld world(GetParam(), size);
    std::atomic<int> come{0};
    run_ranks(size, [&](int rank) {
      const auto comm = world.make(rank);
      Ops ops;
      for (int round = 1; round <= 20; ++round) {
        ++come;
        comm->barrier(ops.next(OpKind::kBarrier, 0));
        EXPECT_GE(come.load(), round * size);
        comm->barrier(ops.next(OpKind::kBarrier, 0));
      }
    });
  }
}

TEST_P(P2pMoveTest, ARootThatRunsAheadIsHeldBackWithoutLosingAnything) {
  // More than may come early: 128 messages of an eager size each.
  constexpr int kCalls = 160;
  CommWorld world(GetParam(), 2);
  run_ranks(2, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds{100});
    for (int call = 0; call < kCalls; ++call) {
      Bytes data(kEagerBytes, static_cast<std::byte>(rank == 0 ? call & 255 : 0));
      comm->broadcast(data.data(), data.size(), 0, ops.next(OpKind::kBroadcast, data.size()));
      ASSERT_EQ(data.front(), static_cast<std::byte>(call & 255));
      ASSERT_EQ(data.back(), static_cast<std::byte>(call & 255));
    }
  });
}

TEST_P(P2pMoveTest, AContextsProgressRunsWhileWaiting) {
  CommWorld world(GetParam(), 2);
  CommWorld other(GetParam(), 2);
  run_ranks(2, [&](int rank) {
    const auto comm = world.make(rank);
    const auto cross = other.make(rank);
    Ops ops;
    std::vector<float> data(500'000, 1.0F);
    const auto request =
        cross->start_all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                                ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
    OpContext context = ops.next(OpKind::kBarrier, 0);
    context.progress = [&] { cross->progress(); };
    // Rank 1 comes late to the barrier, but its cross call is done before it leaves.
    while (rank == 1 && !request->test()) continue;
    comm->barrier(context);
    if (rank == 0) {
      EXPECT_TRUE(request->test());
    }
    EXPECT_EQ(data.back(), 2.0F);
    comm->barrier(ops.next(OpKind::kBarrier, 0));
  });
}

TEST(P2pMoveTcpTest, OnlyRanksThatTalkConnect) {
  CommWorld world(Wire::kTcp, 8);
  std::vector<std::unique_ptr<P2pComm>> comms;  // open until all ranks have been looked at
  for (int rank = 0; rank < 8; ++rank) comms.push_back(world.make(rank));
  run_ranks(8, [&](int rank) {
    P2pComm& comm = *comms[static_cast<std::size_t>(rank)];
    Ops ops;
    const auto& tcp = dynamic_cast<const TcpTransport&>(comm.transport());
    EXPECT_EQ(tcp.connection_count(), 0);
    Bytes data(1000);
    comm.broadcast(data.data(), data.size(), 0, ops.next(OpKind::kBroadcast, data.size()));
    // A binomial tree of eight: the root has three children, a leaf only its parent.
    constexpr std::array<int, 8> kWanted = {3, 1, 2, 1, 3, 1, 2, 1};
    EXPECT_EQ(tcp.connection_count(), kWanted[static_cast<std::size_t>(rank)]);
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, P2pMoveTest,
                         ::testing::Values(Wire::kThread, Wire::kShm, Wire::kTcp,
                                           Wire::kAuthenticated, Wire::kEncrypted, Wire::kMpi),
                         [](const auto& param) { return to_string(param.param); });

}  // namespace
}  // namespace chainmail::ops
