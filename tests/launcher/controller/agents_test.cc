// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/agents.h"

#include <gtest/gtest.h>

#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

TEST(Agents, AMessageGoesToTheOneWhoIsMeant) {
  test::FakeJob fake({1, 1});
  fake.say_hello(0);
  fake.say_hello(1);
  fake.job.agents.send(1, AgentMessage::kRankInput, "text");
  EXPECT_TRUE(fake.told(0).empty());
  const auto told = fake.told(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(type_of(told[0]), AgentMessage::kRankInput);
  EXPECT_EQ(told[0].body, "text");
}

TEST(Agents, NothingIsSentWhereNoAgentIs) {
  test::FakeJob fake({1, 1, 1});
  fake.say_hello(1);
  fake.job.agents.send(0, AgentMessage::kRankInput, "text");
  fake.job.agents.send_to_all(AgentMessage::kRankInput, "all");
  EXPECT_EQ(fake.told(1).size(), 1U);
}

TEST(Agents, HostsWhoseRanksHaveEndedHearNothingMore) {
  test::FakeJob fake({1, 1});
  fake.say_hello(0);
  fake.say_hello(1);
  fake.job.agents[0].all_exited = true;
  fake.job.agents.send_to_running(AgentMessage::kRankInput, "text");
  EXPECT_TRUE(fake.told(0).empty());
  EXPECT_EQ(fake.told(1).size(), 1U);
}

TEST(Agents, AreReapedWhenEachProcessHasEnded) {
  test::FakeJob fake({1, 1});
  fake.say_hello(0);
  fake.say_hello(1);
  fake.job.agents.tell_to_leave(true);
  fake.wire(0).has_ended = true;
  fake.job.agents.reap();
  EXPECT_FALSE(fake.job.agents.are_reaped());
  fake.wire(1).has_ended = true;
  fake.job.agents.reap();
  EXPECT_TRUE(fake.job.agents.are_reaped());
}

TEST(Agents, WhoIsAddedComesBehindTheOthers) {
  test::FakeJob fake({1});
  const Agents::Node& first = fake.job.agents[0];
  Host host;
  host.name = "n9";
  EXPECT_EQ(fake.job.add_node(host), 1U);
  EXPECT_EQ(&fake.job.agents[0], &first);
  EXPECT_EQ(fake.job.agents[1].asked.name, "n9");
  EXPECT_TRUE(fake.job.agents[1].all_exited) << "it was told to start nothing";
  EXPECT_EQ(fake.job.ranks.host_of(fake.job.add_rank(1)), "n9");
}

TEST(Agents, WhoIsRetiredLeavesAndIsForgottenWithItsProcess) {
  test::FakeJob fake({1, 1});
  fake.say_hello(0);
  fake.job.agents.retire(0);
  fake.job.agents.retire(0);
  fake.job.agents.retire(1);
  const auto told = fake.told(0);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(type_of(told[0]), AgentMessage::kLeave);
  fake.job.agents.reap();
  EXPECT_TRUE(fake.job.agents[0].link);
  fake.wire(0).has_ended = true;
  fake.job.agents.reap();
  EXPECT_FALSE(fake.job.agents[0].link);
  EXPECT_TRUE(fake.job.agents.are_reaped());
}

}  // namespace
}  // namespace chainmail::launch
