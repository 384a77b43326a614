// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Two ranks on two "nodes": threads in network namespaces of their own, joined by a veth pair that
// is then taken down. The namespaces end with the threads; nothing is left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>

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

void shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

// The calling thread of rank 0 or 1 gets its own namespace with one end of the pair.
class TwoNodes {
 public:
  void enter(int rank) {
    if (::unshare(CLONE_NEWNET) != 0) throw system_error("unshare");
    thread_ids_.at(static_cast<std::size_t>(rank)) = ::gettid();
    meet_.arrive_and_wait();
    shell("ip link set lo up");
    if (rank == 0) {
      shell("ip link add cut0 type veth peer name cut1 netns /proc/" + std::to_string(::getpid()) +
            "/task/" + std::to_string(thread_ids_[1]) + "/ns/net");
    }
    meet_.arrive_and_wait();
    const std::string name = "cut" + std::to_string(rank);
    shell("ip addr add " + address(rank) + "/24 dev " + name);
    shell("ip link set " + name + " up");
    meet_.arrive_and_wait();
  }
  static std::string address(int rank) { return "10.77.0." + std::to_string(rank + 1); }

 private:
  std::barrier<> meet_{2};
  std::array<std::atomic<int>, 2> thread_ids_{};
};

class CutLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "network namespaces need root";
    }
    std::exception_ptr error;
    std::thread([&] {
      if (::unshare(CLONE_NEWNET) != 0) error = std::make_exception_ptr(1);
    }).join();
    if (error) {
      GTEST_SKIP() << "network namespaces are not allowed here";
    }
    if (std::system("ip -V > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "iproute2 is not installed";
    }
  }

  // Both ranks get a PeerError soon after `limit` from the cut on.
  template <typename Body>
  void expect_both_notice(const Body& body,
                          std::chrono::milliseconds limit = internal::kSilenceLimit) {
    TwoNodes nodes;
    CommWorld world(Wire::kTcp, 2);
    std::array<std::chrono::steady_clock::time_point, 2> known;
    std::atomic<std::chrono::steady_clock::time_point> cut{};
    const auto errors = run_ranks_catching(2, [&](int rank) {
      nodes.enter(rank);
      TcpOptions tcp = world.tcp;
      tcp.rank = rank;
      tcp.silence_limit = limit;
      tcp.silence = std::make_shared<PeerSilence>();
      tcp.interface = TwoNodes::address(rank);
      P2pComm comm(std::make_unique<TcpTransport>(world.rendezvous, tcp));
      Ops ops(std::chrono::seconds{60});
      comm.barrier(ops.next(OpKind::kBarrier, 0));
      const auto take_down = [&] {
        shell("ip link set cut1 down");
        cut = std::chrono::steady_clock::now();
      };
      try {
        body(rank, comm, ops, take_down);
      } catch (...) {
        known[static_cast<std::size_t>(rank)] = std::chrono::steady_clock::now();
        EXPECT_THAT(tcp.silence->silent(), ::testing::ElementsAre(1 - rank));
        throw;
      }
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(is_a<PeerError>(errors[rank])) << what(errors[rank]);
      const std::chrono::duration<double> took = known[rank] - cut.load();
      EXPECT_LT(took, limit + patient(std::chrono::seconds{2})) << "rank " << rank;
    }
  }
};

TEST_F(CutLinkTest, BothSidesNoticeWhileDataIsUnderWay) {
  expect_both_notice([](int rank, P2pComm& comm, Ops& ops, const auto& take_down) {
    std::vector<float> data(4'000'000, 1.0F);
    for (int call = 0;; ++call) {
      if (rank == 1 && call == 5) take_down();
      comm.all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                      ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
    }
  });
}

TEST_F(CutLinkTest, BothSidesNoticeWhileTheyOnlyWait) {
  expect_both_notice([](int rank, P2pComm& comm, Ops& ops, const auto& take_down) {
    if (rank == 1) take_down();
    std::byte byte{};
    comm.broadcast(&byte, 1, 1 - rank, ops.next(OpKind::kBroadcast, 1));
  });
}

TEST_F(CutLinkTest, BothSidesNoticeInAsLongAsTheyAreTold) {
  expect_both_notice(
      [](int rank, P2pComm& comm, Ops& ops, const auto& take_down) {
        if (rank == 1) take_down();
        std::byte byte{};
        comm.broadcast(&byte, 1, 1 - rank, ops.next(OpKind::kBroadcast, 1));
      },
      std::chrono::seconds{4});
}

TEST(PeerSilence, IsNotThatOfWhoSaysNothingOrEnds) {
  CommWorld world(Wire::kTcp, 2);
  run_ranks_catching(2, [&](int rank) {
    TcpOptions tcp = world.tcp;
    tcp.rank = rank;
    tcp.silence_limit = std::chrono::seconds{3};
    tcp.silence = std::make_shared<PeerSilence>();
    P2pComm comm(std::make_unique<TcpTransport>(world.rendezvous, tcp));
    Ops ops(std::chrono::seconds{60});
    comm.barrier(ops.next(OpKind::kBarrier, 0));
    std::this_thread::sleep_for(PeerSilence::enough(tcp.silence_limit) +
                                std::chrono::milliseconds{500});
    EXPECT_THAT(tcp.silence->silent(), ::testing::IsEmpty());
    if (rank == 1) return;
    std::byte byte{};
    EXPECT_THROW(comm.broadcast(&byte, 1, 1, ops.next(OpKind::kBroadcast, 1)), Error);
    EXPECT_THAT(tcp.silence->silent(), ::testing::IsEmpty());
  });
}

}  // namespace
}  // namespace chainmail::ops
