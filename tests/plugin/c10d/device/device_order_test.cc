// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What waits for what on an accelerator, over ranks: barriers for the streams of all, transfers for
// their peer alone.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <chainmail/error.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/device/late/late_world.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::late_tensor;
using chainmail::testing::LateRank;
using chainmail::testing::LateWorld;
using chainmail::testing::now_in;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

at::Tensor of(float value, const LateRank& rank) {
  return late_tensor(at::full({40}, value), rank.rank);
}

WorkPtr all_reduce(LateRank& rank, const at::Tensor& tensor) {
  Tensors tensors{tensor};
  return rank.backend.allreduce(tensors, {});
}

bool holds(const at::Tensor& tensor, float value) {
  return at::equal(now_in(tensor), at::full({40}, value));
}

c10d::BarrierOptions barrier_options(bool is_async, std::chrono::milliseconds limit = {}) {
  c10d::BarrierOptions options;
  options.asyncOp = is_async;
  if (limit.count() > 0) options.timeout = limit;
  return options;
}

class Barrier : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(IsAsync, Barrier, ::testing::Bool());

TEST_P(Barrier, WaitsForTheStreamsOfAllRanks) {
  LateWorld world(3);
  Tensors tensors(3);
  world.run([&](LateRank& rank) {
    const auto me = static_cast<std::size_t>(rank.rank);
    tensors[me] = of(1, rank);
    all_reduce(rank, tensors[me])->wait(std::chrono::seconds{20});
    rank.meet();
    if (rank.rank == 1) world.machine().delay(1, std::chrono::milliseconds{200});
    rank.meet();
    all_reduce(rank, tensors[me])->wait();  // the stream, not the host
    tensors[me].copy_(at::full({40}, 7.0F + static_cast<float>(rank.rank)));
    const WorkPtr work = rank.backend.barrier(barrier_options(GetParam()));
    if (work) work->wait();
    for (std::size_t r = 0; r < tensors.size(); ++r) {
      EXPECT_TRUE(holds(tensors[r], 7.0F + static_cast<float>(r))) << "of rank " << r;
    }
    rank.meet();
  });
}

TEST_P(Barrier, WaitsForADeviceThatTheGroupHasNotWorkedOn) {
  LateWorld world(2);
  Tensors tensors(2);
  world.run([&](LateRank& rank) {
    const auto me = static_cast<std::size_t>(rank.rank);
    if (rank.rank == 1) world.machine().delay(1, std::chrono::milliseconds{200});
    tensors[me] = of(3, rank);
    c10d::BarrierOptions options = barrier_options(GetParam());
    options.device = rank.device;
    const WorkPtr work = rank.backend.barrier(options);
    if (work) work->wait();
    for (const at::Tensor& tensor : tensors) EXPECT_TRUE(holds(tensor, 3));
    rank.meet();
  });
}

TEST(BarrierOfOneDevice, IsOneWithRanksThatHaveNone) {
  LateWorld world(2);
  at::Tensor tensor;
  world.run([&](LateRank& rank) {
    if (rank.rank == 0) {
      tensor = of(1, rank);
      // A transfer makes the context on this rank alone.
      Tensors sent{tensor};
      rank.backend.send(sent, 1, 0);
      world.machine().delay(0, std::chrono::milliseconds{100});
      tensor.copy_(at::full({40}, 5.0F));
    }
    rank.backend.barrier(barrier_options(false));
    EXPECT_TRUE(holds(tensor, 5));
    rank.meet();
    if (rank.rank == 1) {
      Tensors received{of(0, rank)};
      rank.backend.recv(received, 0, 0)->wait(std::chrono::seconds{20});
    }
  });
}

TEST(AsynchronousBarrier, IsDoneWhenTheStreamsAre) {
  LateWorld world(2);
  world.run([&](LateRank& rank) {
    const at::Tensor tensor = of(1, rank);
    all_reduce(rank, tensor)->wait(std::chrono::seconds{20});
    rank.meet();
    world.machine().hold_back();
    rank.meet();
    tensor.copy_(at::full({40}, 9.0F));
    const WorkPtr work = rank.backend.barrier(barrier_options(true));
    EXPECT_THROW(work->wait(std::chrono::milliseconds{20}), TimeoutError);
    EXPECT_FALSE(work->isCompleted());
    rank.meet();
    world.machine().let_go();
    work->wait();
    EXPECT_TRUE(holds(tensor, 9));
  });
}

TEST(BarrierThatFails, AfterItsLimit) {
  LateWorld world(2);
  world.run([&](LateRank& rank) {
    const at::Tensor tensor = of(1, rank);
    all_reduce(rank, tensor)->wait(std::chrono::seconds{20});
    rank.meet();
    world.machine().hold_back();
    rank.meet();
    tensor.copy_(at::full({40}, 9.0F));
    EXPECT_THROW(rank.backend.barrier(barrier_options(false, std::chrono::milliseconds{300})),
                 Error);
    rank.meet();
    world.machine().let_go();
  });
}

TEST(BarrierThatFails, WithItsGroup) {
  LateWorld world(2);
  world.run([&](LateRank& rank) {
    const at::Tensor tensor = of(1, rank);
    all_reduce(rank, tensor)->wait(std::chrono::seconds{20});
    rank.meet();
    world.machine().hold_back();
    rank.meet();
    tensor.copy_(at::full({40}, 9.0F));
    if (rank.rank == 0) {
      const WorkPtr work = rank.backend.barrier(barrier_options(true));
      rank.backend.abort();
      EXPECT_THROW(work->wait(), PeerError);
    }
    rank.meet();
    world.machine().let_go();
  });
}

// Through c10d's calls, with and without communicators from before.
TEST(Transfers, StandInNoOrderWithCollectives) {
  LateWorld world(2);
  world.run([](LateRank& rank) {
    for (int round = 0; round < 3; ++round) {
      const at::Tensor sum = of(1, rank);
      Tensors moved{of(rank.rank == 0 ? 4.0F : 0.0F, rank)};
      WorkPtr transfer;
      WorkPtr reduction;
      if (rank.rank == 0) {
        transfer = rank.backend.send(moved, 1, 0);
        reduction = all_reduce(rank, sum);
      } else {
        reduction = all_reduce(rank, sum);
        transfer = rank.backend.recv(moved, 0, 0);
      }
      transfer->wait(std::chrono::seconds{20});
      reduction->wait(std::chrono::seconds{20});
      EXPECT_TRUE(holds(sum, 2));
      EXPECT_TRUE(holds(moved[0], 4));
    }
  });
}

TEST(Transfers, MayBothBeginWithASend) {
  LateWorld world(2);
  world.run([](LateRank& rank) {
    for (int round = 0; round < 3; ++round) {
      Tensors sent{of(static_cast<float>(rank.rank), rank)};
      Tensors received{of(-1, rank)};
      const WorkPtr sending = rank.backend.send(sent, 1 - rank.rank, 0);
      rank.backend.recv(received, 1 - rank.rank, 0)->wait(std::chrono::seconds{20});
      sending->wait(std::chrono::seconds{20});
      EXPECT_TRUE(holds(received[0], static_cast<float>(1 - rank.rank)));
    }
  });
}

}  // namespace
}  // namespace chainmail::internal
