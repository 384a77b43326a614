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
using ::testing::UnorderedElementsAre;

using AgentStartsTest = StartedAgents;

TEST_F(AgentStartsTest, AgentsHereAndBehindARemoteShellSayHello) {
  start({"localhost", "up1"});
  EXPECT_TRUE(run_until([&] { return frames_.size() == 2; }));
  EXPECT_EQ(hellos_, 2);
  EXPECT_THAT(frames_, UnorderedElementsAre(0, 1));
  for (const std::uint32_t number : {0U, 1U}) {
    ASSERT_TRUE(node(number).link->hello());
    EXPECT_EQ(node(number).link->hello()->pid, 77U);
    EXPECT_EQ(node(number).starts, 1);
  }
  EXPECT_EQ(tries_of("--agent"), 1);
  EXPECT_EQ(tries_of("up1"), 1);
  EXPECT_THAT(starts_->failed(), IsEmpty());
}

TEST_F(AgentStartsTest, BadUsageIsFoundBeforeTheFirstStart) {
  plan({"up0", "-bad"});
  EXPECT_THROW(starts_->start(), UsageError);
  EXPECT_EQ(node(0).link, nullptr);
  EXPECT_EQ(tries_of("up0"), 0);
  remote_shell_ = "ssh 'open";
  plan({"up0"});
  EXPECT_THROW(starts_->start(), UsageError);
}

TEST_F(AgentStartsTest, ARemoteShellThatIsMissingFailsTheJobAtOnce) {
  remote_shell_ = (folder_ / "missing").string();
  start({"up0", "up1"});
  EXPECT_THAT(failures_, ElementsAre(AllOf(HasSubstr("cannot start the agent on host up0"),
                                           HasSubstr("another remote shell by --rsh"))));
  EXPECT_EQ(node(1).starts, 0);
}

TEST_F(AgentStartsTest, ARemoteShellThatEndsAtOnceIsQuoted) {
  start({"odd0"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(AllOf(HasSubstr("host odd0"), HasSubstr("exited with code 3"),
                                           HasSubstr("| no idea"))));
  EXPECT_EQ(tries_of("odd0"), 1);
}

TEST_F(AgentStartsTest, ABusyHostIsAskedAgain) {
  start({"busy2"});
  EXPECT_TRUE(run_until([&] { return hellos_ == 1; }));
  EXPECT_THAT(again_, ElementsAre(0, 0));
  EXPECT_EQ(node(0).starts, 3);
  EXPECT_EQ(tries_of("busy2"), 3);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(starts_->failed(), IsEmpty());
}

TEST_F(AgentStartsTest, AHostOutOfReachIsNamed) {
  start({"up0", "down1"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("no route to host down1")));
  EXPECT_THAT(again_, IsEmpty());
  EXPECT_THAT(starts_->failed(), ElementsAre(1));
}

TEST_F(AgentStartsTest, FailuresWithinASecondAreToldTogether) {
  gives_up_ = false;
  start({"down0", "down1", "silent2"});
  EXPECT_TRUE(run_until([&] { return lost_.size() == 2; }));
  starts_->give_up(0);
  starts_->give_up(1);
  EXPECT_THAT(failures_, IsEmpty()) << "the third may fail as well";
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_,
              ElementsAre(AllOf(HasSubstr("no route to host down0"), HasSubstr("| ssh: connect to"),
                                HasSubstr("\nlauncher: there is no route to host down1"))));
}

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

TEST_F(AgentStartsTest, NobodyWaitsForHostsBehindOneThatHasFailed) {
  start({"down0", "far1"}, 1);
  EXPECT_TRUE(run_until([&] { return lost_.size() == 1; }));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("no route to host down0")));
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

TEST_F(AgentStartsTest, HostsThatAnotherCannotReachAreStartedFromHere) {
  ::testing::internal::CaptureStderr();
  start({"up0", "up1", "far2", "far3"}, 2);
  EXPECT_TRUE(run_until([&] { return node(3).link != nullptr && hellos_ == 2; }));
  EXPECT_EQ(node(2).parent, 0U);
  EXPECT_EQ(tries_of("far2") + tries_of("far3"), 0);
  fail_tunnel(0, "Host key verification failed.\n");
  fail_tunnel(1, "Host key verification failed.\n");
  EXPECT_TRUE(run_until([&] { return hellos_ == 4; }));
  EXPECT_THAT(again_, UnorderedElementsAre(2, 3));
  EXPECT_FALSE(node(2).parent || node(3).parent);
  EXPECT_THAT(node(0).children, IsEmpty());
  EXPECT_EQ(tries_of("far2"), 1);
  EXPECT_EQ(tries_of("far3"), 1);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(times_said("cannot be reached from host up0 (Host key verification failed.)"), 1U);
}

TEST_F(AgentStartsTest, AHostThatWasReachedIsNotTriedFromHere) {
  start({"up0", "far1"}, 1);
  EXPECT_TRUE(run_until([&] { return node(1).link != nullptr; }));
  fail_tunnel(0, "chainmail: no folder for the agent: /tmp is full;\n");
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("host far1: no folder for the agent")));
  EXPECT_EQ(tries_of("far1"), 0);
}

TEST_F(AgentStartsTest, AfterStopNoneIsStarted) {
  plan({"up0"});
  starts_->stop();
  starts_->start();
  run_out();
  EXPECT_EQ(node(0).starts, 0);
}

TEST_F(AgentStartsTest, AfterStopNoHelloStartsOthers) {
  start({"up0", "far1"}, 1);
  starts_->stop();
  EXPECT_TRUE(run_until([&] { return hellos_ == 1; }));
  EXPECT_EQ(node(1).starts, 0);
}

TEST_F(AgentStartsTest, AfterStopNoTryIsLeft) {
  start({"busy1"});
  EXPECT_TRUE(run_until([&] { return again_.size() == 1; }));
  starts_->stop();
  run_out();
  EXPECT_EQ(node(0).starts, 1);
  EXPECT_FALSE(starts_->try_again(0));
  starts_->give_up(0);
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(AgentStartsTest, AnInstalledLauncherThatWasNotRunIsToldOnce) {
  ::testing::internal::CaptureStderr();
  start({"noted0", "noted1"});
  const auto is_noted = [&](std::uint32_t number) {
    const AgentLink& link = *node(number).link;
    return link.hello() && link.error_output().find("why not\n") != std::string::npos;
  };
  EXPECT_TRUE(run_until([&] { return is_noted(0) && is_noted(1); }));
  EXPECT_EQ(times_said(": why not; the launcher has sent itself there instead"), 1U);
}

}  // namespace
}  // namespace chainmail::launch
