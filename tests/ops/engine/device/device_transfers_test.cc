// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends and receives of a device group: in which order ranks may call them beside collectives and
// beside each other, and what ends them. The fake's streams stand still until both sides of a
// transfer have come; what cannot go on is a TimeoutError here.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/engine/device/device_world.h"

namespace chainmail::ops {
namespace {

using test::DeviceRank;
using test::DeviceWorld;
using Floats = std::vector<float>;
using Issued = std::shared_ptr<DeviceOperation>;

std::byte* bytes_of(Floats& data) { return reinterpret_cast<std::byte*>(data.data()); }

GroupOptions with_limit(std::chrono::milliseconds limit) {
  GroupOptions options;
  options.timeout = limit;
  return options;
}

/// Long enough for a loaded machine; what stands still takes all of it.
constexpr std::chrono::seconds kLimit{20};

Collective transfer(OpKind kind, int peer, Floats& data) {
  Collective collective;
  collective.kind = kind;
  collective.root = peer;
  collective.count = data.size();
  collective.input = bytes_of(data);
  collective.output = bytes_of(data);
  return collective;
}

DeviceStream new_stream(DeviceRank& rank) {
  DeviceStream stream;
  EXPECT_EQ(rank.library.device().create_stream(stream), kDeviceSuccess);
  return stream;
}

/// Of the ranks; for what may still be queued when they end, so that it must outlive the world.
class LastingFloats {
 public:
  Floats& of(const DeviceRank& rank) { return floats_.at(static_cast<std::size_t>(rank.rank)); }

 private:
  std::vector<Floats> floats_ = std::vector<Floats>(3, Floats(10, 1.0F));
};

/// What c10d's isend and irecv do: a stream for each peer and direction.
class Lines {
 public:
  explicit Lines(DeviceRank& rank) : rank_(rank) {}
  Issued send(int peer, Floats& data) { return issue(OpKind::kSend, peer, data); }
  Issued receive(int peer, Floats& data) { return issue(OpKind::kRecv, peer, data); }

 private:
  Issued issue(OpKind kind, int peer, Floats& data) {
    auto [found, is_new] = streams_.try_emplace({kind, peer});
    if (is_new) found->second = new_stream(rank_);
    return rank_.device_group.issue(transfer(kind, peer, data), found->second);
  }

  DeviceRank& rank_;
  std::map<std::pair<OpKind, int>, DeviceStream> streams_;
};

Issued all_reduce(DeviceRank& rank, Floats& data) {
  Collective collective;
  collective.count = data.size();
  collective.output = bytes_of(data);
  return rank.device_group.issue(collective, rank.stream);
}

TEST(DeviceTransfers, StandInNoOrderWithCollectives) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    DeviceWorld world({1, 1}, with_limit(kLimit), {}, seed);
    world.run_ok([](DeviceRank& rank) {
      Lines lines(rank);
      for (int round = 0; round < 3; ++round) {  // the first makes the communicators
        Floats sum(50, 1.0F);
        Floats moved(70, rank.rank == 0 ? static_cast<float>(round) : -1.0F);
        std::vector<Issued> issued;
        if (rank.rank == 0) {
          issued.push_back(lines.send(1, moved));
          issued.push_back(all_reduce(rank, sum));
        } else {
          issued.push_back(all_reduce(rank, sum));
          issued.push_back(lines.receive(0, moved));
        }
        for (const Issued& one : issued) one->wait();
        EXPECT_EQ(sum, Floats(50, 2.0F));
        EXPECT_EQ(moved, Floats(70, static_cast<float>(round)));
      }
    });
  }
}

TEST(DeviceTransfers, MayWaitForWhatTheirPeerDoesFirstOnTheHost) {
  DeviceWorld world({2}, with_limit(kLimit));
  world.run_ok([](DeviceRank& rank) {
    Lines lines(rank);
    for (int round = 0; round < 2; ++round) {
      Collective barrier;
      barrier.kind = OpKind::kBarrier;
      Floats moved(10, rank.rank == 0 ? 7.0F : 0.0F);
      Issued issued;
      if (rank.rank == 0) issued = lines.send(1, moved);
      rank.group.run(barrier);
      if (rank.rank == 1) issued = lines.receive(0, moved);
      issued->wait();
      EXPECT_EQ(moved, Floats(10, 7.0F));
    }
  });
}

TEST(DeviceTransfers, AllMaySendFirst) {
  for (const int size : {2, 3, 4}) {
    DeviceWorld world({size}, with_limit(kLimit));
    world.run_ok([size](DeviceRank& rank) {
      Lines lines(rank);
      const int next = (rank.rank + 1) % size;
      const int before = (rank.rank + size - 1) % size;
      for (int round = 0; round < 3; ++round) {
        Floats out(100, static_cast<float>(10 * rank.rank + round));
        Floats in(100);
        const Issued sent = lines.send(next, out);
        lines.receive(before, in)->wait();
        sent->wait();
        EXPECT_EQ(in, Floats(100, static_cast<float>(10 * before + round)));
      }
    });
  }
}

TEST(DeviceTransfers, KeepTheirOrder) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    DeviceWorld world({2}, with_limit(kLimit), {}, seed);
    world.run_ok([](DeviceRank& rank) {
      constexpr int kCount = 12;
      std::vector<Floats> data(kCount, Floats(20, -1.0F));
      std::vector<Issued> issued;
      // On streams of several kinds: one transfer still follows another.
      const std::vector<DeviceStream> streams = {new_stream(rank), new_stream(rank)};
      for (int i = 0; i < kCount; ++i) {
        Floats& one = data[static_cast<std::size_t>(i)];
        if (rank.rank == 0) one.assign(20, static_cast<float>(i));
        const OpKind kind = rank.rank == 0 ? OpKind::kSend : OpKind::kRecv;
        issued.push_back(rank.device_group.issue(transfer(kind, 1 - rank.rank, one),
                                                 streams[static_cast<std::size_t>(i % 2)]));
        if (i == kCount / 2) issued.back()->wait();
      }
      for (const Issued& one : issued) one->wait();
      for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(data[static_cast<std::size_t>(i)], Floats(20, static_cast<float>(i)));
      }
    });
  }
}

TEST(DeviceTransfers, FollowTheStreamTheyAreIssuedOn) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    DeviceWorld world({2}, with_limit(kLimit), {}, seed);
    world.run_ok([](DeviceRank& rank) {
      const DeviceStream stream = new_stream(rank);
      for (int round = 0; round < 2; ++round) {
        const Floats written(30, 5.0F + static_cast<float>(round));
        Floats data(30, -1.0F);
        Floats read(30);
        const auto copy = [&](Floats& to, const Floats& from) {
          static_cast<void>(rank.library.device().copy(to.data(), from.data(),
                                                       to.size() * sizeof(float), stream));
        };
        if (rank.rank == 0) copy(data, written);
        const OpKind kind = rank.rank == 0 ? OpKind::kSend : OpKind::kRecv;
        const Issued issued = rank.device_group.issue(transfer(kind, 1 - rank.rank, data), stream);
        copy(read, data);
        rank.device_group.mark(stream, kLimit)->wait();
        EXPECT_EQ(read, written);
      }
    });
  }
}

TEST(DeviceTransfers, AHeldStreamGoesOnWhenTheGroupFails) {
  LastingFloats floats;
  DeviceWorld world({3}, with_limit(std::chrono::seconds{60}));
  std::atomic<bool> is_held{false};
  const auto errors = world.run([&](DeviceRank& rank) {
    Floats& data = floats.of(rank);
    if (rank.rank == 0) {
      const DeviceStream stream = new_stream(rank);
      const Issued issued = rank.device_group.issue(transfer(OpKind::kSend, 1, data), stream);
      DeviceEvent end;
      ASSERT_EQ(rank.library.device().create_event(end), kDeviceSuccess);
      ASSERT_EQ(rank.library.device().record(end, stream), kDeviceSuccess);
      EXPECT_EQ(rank.library.device().query(end), kDeviceNotReady);
      is_held = true;
      try {
        issued->wait();
      } catch (const PeerError&) {
        while (rank.library.device().query(end) == kDeviceNotReady) std::this_thread::yield();
        throw;
      }
    } else if (rank.rank == 2) {
      while (!is_held) std::this_thread::yield();
      rank.group.abort(std::make_exception_ptr(PeerError("rank 2 was killed", 2)));
    } else {
      all_reduce(rank, data)->wait();
    }
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(test::is<PeerError>(errors[rank])) << test::text_of(errors[rank]);
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.library(rank).nccl().live_communicators(), 0) << "rank " << rank;
  }
}

TEST(DeviceTransfers, WhoNeverComesIsNamed) {
  LastingFloats floats;
  DeviceWorld world({2}, with_limit(std::chrono::milliseconds{1500}));
  const auto errors = world.run([&](DeviceRank& rank) {
    if (rank.rank == 1) return;
    Lines(rank).receive(1, floats.of(rank))->wait();
  });
  ASSERT_TRUE(test::is<TimeoutError>(errors[0])) << test::text_of(errors[0]);
  EXPECT_NE(test::text_of(errors[0]).find("rank 1"), std::string::npos) << test::text_of(errors[0]);
}

TEST(DeviceTransfers, AnErrorOfNcclEndsThem) {
  for (const char* call : {"init", "send"}) {
    SCOPED_TRACE(call);
    LastingFloats floats;
    DeviceWorld world({2}, with_limit(std::chrono::seconds{60}));
    const auto errors = world.run([&](DeviceRank& rank) {
      if (rank.rank == 0) rank.library.nccl().fail_next(call, NcclCode::kInternalError);
      Floats& data = floats.of(rank);
      Lines lines(rank);
      (rank.rank == 0 ? lines.send(1, data) : lines.receive(0, data))->wait();
    });
    EXPECT_TRUE(test::is<NcclError>(errors[0])) << test::text_of(errors[0]);
    EXPECT_TRUE(test::is<PeerError>(errors[1])) << test::text_of(errors[1]);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(world.library(rank).nccl().live_communicators(), 0) << "rank " << rank;
    }
  }
}

TEST(DeviceTransfers, CanBeCapturedOnceTheyHaveRun) {
  LastingFloats floats;
  DeviceWorld world({2}, with_limit(kLimit));
  world.run_ok([&](DeviceRank& rank) {
    const OpKind kind = rank.rank == 0 ? OpKind::kSend : OpKind::kRecv;
    Floats& data = floats.of(rank);
    const Collective one = transfer(kind, 1 - rank.rank, data);
    test::FakeDevice& device = rank.library.device();
    DeviceStream captured = new_stream(rank);
    device.begin_capture(captured);
    EXPECT_THROW(rank.device_group.issue(one, captured), InvalidArgument);
    EXPECT_THROW(rank.device_group.mark(captured, kLimit), InvalidArgument);
    device.end_capture();

    rank.device_group.issue(one, rank.stream)->wait();
    captured = new_stream(rank);
    device.begin_capture(captured);
    EXPECT_TRUE(rank.device_group.issue(one, captured)->is_done());
    device.end_capture();
    rank.device_group.shutdown();
    EXPECT_EQ(rank.library.nccl().graph_waits(), 0);
    EXPECT_THROW(rank.device_group.issue(one, rank.stream), InvalidArgument);
  });
}

TEST(DeviceTransfers, LeaveNothingBehind) {
  DeviceWorld world({3}, with_limit(kLimit));
  test::FakeMachine& machine = *world.cluster().machine;
  const std::size_t streams = machine.live_streams();
  world.run_ok([](DeviceRank& rank) {
    const DeviceStream other = new_stream(rank);
    Floats data(10);
    for (int round = 0; round < 2; ++round) {
      std::vector<Issued> issued;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank.rank) continue;
        const OpKind kind = peer > rank.rank ? OpKind::kSend : OpKind::kRecv;
        rank.device_group.issue(transfer(kind, peer, data), other)->wait();
      }
    }
    rank.device_group.shutdown();
    rank.library.device().destroy_stream(other);
    rank.library.device().destroy_stream(rank.stream);
    EXPECT_EQ(rank.library.nccl().live_communicators(), 0);
  });
  EXPECT_EQ(machine.live_memory(), 0U);
  EXPECT_EQ(machine.live_events(), 0U);
  EXPECT_EQ(machine.live_streams(), streams);
}

}  // namespace
}  // namespace chainmail::ops
