// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's part in MPI, over agents that are no processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/controller/mpi_coordinator.h"
#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

using test::FakeJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MpiCoordinatorTest : public ::testing::Test {
 protected:
  MpiCoordinatorTest() {
    fake_.say_hello(0);
    fake_.say_hello(1);
  }

  void say(std::uint32_t node, const MpiMessage& message) {
    send_in_pieces(message, [&](std::string body) {
      mpi_.on_frame(node, make_frame(AgentMessage::kMpi, std::move(body)));
    });
  }

  FakeJob fake_{{2, 1}};
  std::vector<std::string> events_;
  MpiCoordinator mpi_{
      MpiMode::kAuto,
      true,
      fake_.job.agents,
      {0, 0, 1},
      {[this](const std::string& cause) { events_.push_back(cause); },
       [this](std::uint32_t node, std::uint32_t rank, int code, const std::string& cause) {
         events_.push_back("node " + std::to_string(node) + " rank " + std::to_string(rank) +
                           " code " + std::to_string(code) + ": " + cause);
       },
       [this](std::uint32_t node) { events_.push_back("helper for " + std::to_string(node)); }}};
};

TEST_F(MpiCoordinatorTest, EveryNodeHasItsOrder) {
  EXPECT_EQ(mpi_.order_for(1).node, 1U);
  EXPECT_EQ(mpi_.order_for(0).name, mpi_.order_for(1).name);
  EXPECT_TRUE(mpi_.order_for(0).sends_helper);
  EXPECT_THAT(mpi_.node_names(), ElementsAre("n0", "n1"));
}

TEST_F(MpiCoordinatorTest, AnAbortIsNeverASuccess) {
  say(1, {.op = MpiOp::kAbort, .status = 0, .ranks = {2}, .data = "N/A"});
  say(0, {.op = MpiOp::kAbort, .status = 256 + 7, .ranks = {1}, .data = "why"});
  EXPECT_THAT(events_, ElementsAre("node 1 rank 2 code 1: called MPI_Abort with code 0",
                                   "node 0 rank 1 code 7: called MPI_Abort with code 263: why"));
}

TEST_F(MpiCoordinatorTest, WhatFailsIsHandedOn) {
  say(1, {.op = MpiOp::kUnserved, .data = "no folder"});
  say(0, {.op = MpiOp::kWantHelper});
  say(0, {.op = MpiOp::kUnfinished, .ranks = {0}});
  EXPECT_THAT(events_, ElementsAre("MPI cannot be served on host n1: no folder", "helper for 0",
                                   HasSubstr("node 0 rank 0 code 1: ended after MPI_Init")));
  EXPECT_THROW(say(0, {.op = MpiOp::kUnfinished}), SystemError) << "names no rank";
}

TEST_F(MpiCoordinatorTest, AFenceIsAnsweredWhenAllNodesHaveSpoken) {
  say(0, {.op = MpiOp::kGather, .key = "fence", .data = "a"});
  EXPECT_TRUE(fake_.told(0).empty());
  say(1, {.op = MpiOp::kGather, .key = "fence", .data = "b"});
  for (const std::uint32_t node : {0U, 1U}) {
    const auto told = fake_.told(node);
    ASSERT_EQ(told.size(), 1U) << node;
    const auto answer = MpiPieces().add(told[0].body);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->op, MpiOp::kGathered);
    EXPECT_EQ(answer->data, "ab");
  }
}

}  // namespace
}  // namespace chainmail::launch
