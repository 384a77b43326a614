// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How agents come up, and what is said where none does.

#include "launcher/controller/starting/agent_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/controller/started_agents.h"

namespace chainmail::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using AgentStartsTest = StartedAgents;

TEST_F(AgentStartsTest, WhereAllHaveFailedNobodyWaitsForMore) {
  gives_up_ = false;
  start({"down0", "down1"});
  EXPECT_TRUE(run_until([&] { return lost_.size() == 2; }));
  starts_->give_up(0);
  EXPECT_THAT(failures_, IsEmpty());
  starts_->give_up(1);
  EXPECT_THAT(failures_, ElementsAre(AllOf(HasSubstr("host down0"), HasSubstr("host down1"))));
  run_out();
  EXPECT_EQ(failures_.size(), 1U) << "told twice";
}

TEST_F(AgentStartsTest, AHostBetweenTwoTriesMayFailWithinTheSecond) {
  gives_up_ = false;
  start({"busy99", "down1"});
  EXPECT_TRUE(run_until([&] { return lost_.size() == 1 && node(0).link->is_lost(); }));
  starts_->give_up(1);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("no route to host down1")));
}

}  // namespace
}  // namespace chainmail::launch
