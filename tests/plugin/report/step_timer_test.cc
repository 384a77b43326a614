// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/report/timing.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/support/patience.h"

namespace chainmail {
namespace {

TEST(StepTimer, NeedsACommunicator) { EXPECT_THROW(StepTimer(nullptr), InvalidArgument); }

// One rank computes longer; the others' time goes into waiting for it.
TEST(StepTimer, TellsWaitingFromComputing) {
  const auto slowness = patient(std::chrono::milliseconds{300});  // more than noise adds
  const double slowness_ms = slowness.count() * 1000;
  for (const char* name : {"naive", "hierarchical"}) {
    testing::with_communicator({2, 1}, name, {}, [&](const std::shared_ptr<Communicator>& comm) {
      torch::nn::Linear model(2, 2);
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::SGD>(model->parameters(), 0.1), comm, {.model = &model});
      StepTimer timer(comm);
      std::this_thread::sleep_for(2 * slowness);  // before start(): does not count
      timer.start();
      for (int i = 0; i < 2; ++i) {
        if (comm->rank() == 1) std::this_thread::sleep_for(slowness);
        optimizer->zero_grad();
        model->forward(torch::ones({1, 2})).sum().backward();
        optimizer->step();
        timer.step();
      }
      std::this_thread::sleep_for(slowness);  // after the last step: nor does this
      const TimingSummary summary = timer.summary();
      ASSERT_EQ(summary.ranks.size(), 3U);
      EXPECT_EQ(summary.slowest, 1);
      for (const RankTiming& rank : summary.ranks) {
        EXPECT_EQ(rank.steps, 2);
        EXPECT_GE(rank.step_ms, 0.9 * slowness_ms);
      }
      EXPECT_LT(summary.ranks[1].waiting_ms, summary.ranks[0].waiting_ms);
      EXPECT_GE(summary.ranks[1].busy_ms(), 0.9 * slowness_ms);
      EXPECT_GT(summary.ranks[0].waiting_ms, 0.3 * slowness_ms);
      EXPECT_EQ(summary.ranks[2].host, "host1");
    });
  }
}

}  // namespace
}  // namespace chainmail
