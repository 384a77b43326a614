// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What goes wrong on a device, injected into the fake NCCL: every rank gets the right error within
// its bound, communicators are aborted, nothing is left behind.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/engine/device/device_world.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using test::DeviceRank;
using test::DeviceWorld;

constexpr std::size_t kCount = 5000;
// Ten times what the slowest of these takes on an idle machine.
constexpr std::chrono::seconds kBound{20};

GroupOptions options_with(std::chrono::milliseconds limit) {
  GroupOptions options;
  options.algorithm = Algorithm::kHierarchical;
  options.timeout = limit;
  return options;
}

/// A good all-reduce, then `between`, then two more: the other node may be done with the first of
/// them when something fails on this one.
DeviceWorld::Body reduce_around(const std::function<void(DeviceRank&)>& between) {
  return [between](DeviceRank& rank) {
    // The machine's memory: what is queued when an all_reduce throws may still write it.
    void* memory = nullptr;
    ASSERT_EQ(rank.library.device().allocate(memory, kCount * sizeof(float)), kDeviceSuccess);
    std::fill_n(static_cast<float*>(memory), kCount, 1.0F);
    auto* const bytes = static_cast<std::byte*>(memory);
    rank.all_reduce({}, bytes, kCount);
    between(rank);
    rank.all_reduce({}, bytes, kCount);
    rank.all_reduce({}, bytes, kCount);
  };
}

void expect_left_behind_nothing(DeviceWorld& world) {
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(world.library(rank).nccl().live_communicators(), 0) << "rank " << rank;
  }
}

struct Bounded : Stopwatch {
  ~Bounded() { EXPECT_LT(elapsed(), patient(kBound)); }
};

TEST(DeviceFailure, ARankThatHangsIsATimeoutOnAll) {
  const Bounded bounded;
  DeviceWorld world({2, 2}, options_with(std::chrono::milliseconds{1500}));
  const auto errors = world.run(reduce_around([](DeviceRank& rank) {
    if (rank.rank == 3) rank.library.nccl().hang();
  }));
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
    EXPECT_NE(test::text_of(error).find("all_reduce sum of float32 [5000]"), std::string::npos)
        << test::text_of(error);
  }
  EXPECT_GT(world.library(0).nccl().aborts(), 0);
  expect_left_behind_nothing(world);
}

TEST(DeviceFailure, ARankThatNeverComesIsNamed) {
  const Bounded bounded;
  DeviceWorld world({2, 1}, options_with(std::chrono::seconds{3}));
  const auto errors = world.run([](DeviceRank& rank) {
    if (rank.rank == 1) return;
    float value = 1;
    rank.all_reduce({}, reinterpret_cast<std::byte*>(&value), 1);
  });
  for (const std::size_t rank : {0U, 2U}) {
    ASSERT_TRUE(test::is<TimeoutError>(errors[rank])) << test::text_of(errors[rank]);
    EXPECT_NE(test::text_of(errors[rank]).find("rank 1 has not come"), std::string::npos)
        << test::text_of(errors[rank]);
  }
  expect_left_behind_nothing(world);
}

TEST(DeviceFailure, ARemoteErrorIsAPeerErrorOnAll) {
  const Bounded bounded;
  DeviceWorld world({2, 2}, options_with(std::chrono::seconds{60}));
  const auto errors = world.run(reduce_around([](DeviceRank& rank) {
    if (rank.rank == 2) rank.library.nccl().hang();
    if (rank.rank == 1) rank.library.nccl().fail_in_the_background(NcclCode::kRemoteError);
  }));
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<PeerError>(error)) << test::text_of(error);
    EXPECT_NE(test::text_of(error).find("rank 1"), std::string::npos) << test::text_of(error);
  }
  expect_left_behind_nothing(world);
}

TEST(DeviceFailure, ACallThatFailsIsAnNcclErrorThereAndAPeerErrorElsewhere) {
  for (const char* call : {"all_reduce", "reduce", "broadcast"}) {
    SCOPED_TRACE(call);
    const Bounded bounded;
    DeviceWorld world({2, 2}, options_with(std::chrono::seconds{60}));
    // Rank 0 is a leader, which makes all of these calls.
    const auto errors = world.run(reduce_around([call](DeviceRank& rank) {
      if (rank.rank == 0) rank.library.nccl().fail_next(call, NcclCode::kInternalError);
    }));
    EXPECT_TRUE(test::is<NcclError>(errors[0])) << test::text_of(errors[0]);
    for (const std::size_t rank : {1U, 2U, 3U}) {
      EXPECT_TRUE(test::is<PeerError>(errors[rank])) << test::text_of(errors[rank]);
    }
    expect_left_behind_nothing(world);
  }
}

TEST(DeviceFailure, CommunicatorsThatCannotBeMade) {
  for (const char* call : {"make_id", "init", "split"}) {
    SCOPED_TRACE(call);
    const Bounded bounded;
    DeviceWorld world({2, 2}, options_with(std::chrono::seconds{60}));
    const auto errors = world.run([call](DeviceRank& rank) {
      if (rank.rank == 0) rank.library.nccl().fail_next(call, NcclCode::kSystemError);
      float value = 1;
      rank.all_reduce({}, reinterpret_cast<std::byte*>(&value), 1);
    });
    EXPECT_TRUE(test::is<NcclError>(errors[0])) << test::text_of(errors[0]);
    for (const std::size_t rank : {1U, 2U, 3U}) {
      EXPECT_TRUE(test::is<PeerError>(errors[rank])) << test::text_of(errors[rank]);
    }
    expect_left_behind_nothing(world);
  }
}

TEST(DeviceFailure, TheGroupsDeathFreesWhoWaitsForTheDevice) {
  const Bounded bounded;
  DeviceWorld world({2, 2}, options_with(std::chrono::seconds{60}));
  const auto errors = world.run(reduce_around([](DeviceRank& rank) {
    if (rank.rank == 2) {
      rank.group.abort(std::make_exception_ptr(PeerError("rank 3 on node2 was killed", 3)));
    }
  }));
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<PeerError>(error));
    EXPECT_EQ(test::text_of(error), "rank 3 on node2 was killed");
  }
  expect_left_behind_nothing(world);
}

void expect_told_through_the_host(const std::vector<int>& nodes,
                                  const std::function<void(DeviceRank&)>& between) {
  const Bounded bounded;
  DeviceGroupOptions device;
  device.crosses_on_host = true;
  DeviceWorld world(nodes, options_with(std::chrono::seconds{60}), device);
  for (const auto& error : world.run(reduce_around(between))) {
    EXPECT_TRUE(test::is<PeerError>(error)) << test::text_of(error);
  }
  expect_left_behind_nothing(world);
}

TEST(DeviceFailure, ThroughTheHostToo) {
  expect_told_through_the_host({2, 2}, [](DeviceRank& rank) {
    if (rank.rank != 3) return;
    rank.group.abort(std::make_exception_ptr(PeerError("rank 3 stops", 3)));
  });
}

// The other node's leader hears of it first from the operation of the leaders.
TEST(DeviceFailure, OfALeaderThroughTheHost) {
  expect_told_through_the_host({1, 1}, [](DeviceRank& rank) {
    if (rank.rank != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    rank.group.abort(std::make_exception_ptr(PeerError("rank 1 stops", 1)));
  });
}

TEST(DeviceFailure, ASlowRankIsNoError) {
  DeviceWorld world({2, 2}, options_with(std::chrono::seconds{60}));
  world.run_ok(reduce_around([&](DeviceRank& rank) {
    if (rank.rank == 1) world.cluster().machine->delay(1, std::chrono::milliseconds{300});
  }));
}

TEST(DeviceFailure, AWaitMayEndBeforeTheOperation) {
  DeviceWorld world({2}, options_with(std::chrono::seconds{60}));
  world.run_ok([&](DeviceRank& rank) {
    std::vector<float> data(kCount, 1.0F);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    rank.all_reduce({}, bytes, kCount);
    world.cluster().machine->delay(rank.rank, std::chrono::milliseconds{500});
    Collective collective;
    collective.count = kCount;
    collective.output = bytes;
    const auto operation = rank.device_group.issue(collective, rank.stream);
    EXPECT_THROW(operation->wait(std::chrono::milliseconds{20}), TimeoutError);
    operation->wait();
    EXPECT_EQ(data.front(), 4.0F);
  });
}

TEST(DeviceFailure, AfterwardsANewGroupWorks) {
  const std::vector<int> nodes = {2, 2};
  for (int round = 0; round < 2; ++round) {
    DeviceWorld world(nodes, options_with(std::chrono::seconds{60}));
    const auto errors = world.run(reduce_around([round](DeviceRank& rank) {
      if (round == 0 && rank.rank == 1) {
        rank.library.nccl().fail_in_the_background(NcclCode::kSystemError);
      }
    }));
    for (const auto& error : errors) EXPECT_EQ(error == nullptr, round == 1);
  }
}

}  // namespace
}  // namespace chainmail::ops
