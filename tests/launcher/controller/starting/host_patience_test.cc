// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Hosts that are out of reach and are waited for.

#include "launcher/controller/starting/host_patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/launcher/controller/started_agents.h"

namespace chainmail::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HostPatienceTest : public StartedAgents {
 protected:
  void wait_at_most(std::chrono::milliseconds time) { options_.wait_hosts = time; }
  // backN is down as long as there is no file of its name.
  void let_come_back(const std::string& host) { std::ofstream(folder_ / host) << ""; }
};

TEST_F(HostPatienceTest, AHostThatComesBackIsTaken) {
  ::testing::internal::CaptureStderr();
  wait_at_most(std::chrono::minutes(1));
  start({"up0", "back1"});
  EXPECT_TRUE(run_until([&] { return tries_of("back1") >= 2 && !waiting_.empty(); }));
  EXPECT_THAT(waiting_.back(), AllOf(HasSubstr("host back1 cannot be reached yet"),
                                     HasSubstr("--wait-hosts"), HasSubstr("refuses connections")));
  let_come_back("back1");
  EXPECT_TRUE(run_until([&] { return hellos_ == 2; }));
  EXPECT_TRUE(run_until([&] { return waiting_.back().empty(); }));
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(starts_->failed(), IsEmpty());
  EXPECT_EQ(times_said("back1 cannot be reached yet"), 1U);
}

TEST_F(HostPatienceTest, WhenTimeIsOverAllThatAreMissingAreNamed) {
  wait_at_most(std::chrono::seconds(3));
  start({"up0", "down1", "silent2", "down3"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(AllOf(HasSubstr("no route to host down1"),
                                           HasSubstr("no route to host down3"))));
  EXPECT_THAT(starts_->failed(), ElementsAre(1, 3));
  EXPECT_GE(tries_of("down1"), 2);
  const auto tries = tries_of("down1");
  job_->agents.drop_links();  // the silent one
  (void)end_all_children(internal::Deadline::after(std::chrono::seconds(10)));
  job_->io.restart();
  job_->io.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(tries_of("down1"), tries) << "one more after the end";
}

TEST_F(HostPatienceTest, ARefusedLoginIsNotWaitedFor) {
  wait_at_most(std::chrono::minutes(10));
  start({"down0", "refused1"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("permission denied on host refused1")));
  EXPECT_THAT(starts_->failed(), ElementsAre(1));
}

TEST_F(HostPatienceTest, WithoutTimeNobodyIsWaitedFor) {
  start({"down0"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); }));
  EXPECT_EQ(tries_of("down0"), 1);
  EXPECT_THAT(waiting_, IsEmpty());
}

TEST_F(HostPatienceTest, AWorldThatIsStartedAnewWaitsUnasked) {
  generation_ = 1;
  start({"back0"});
  EXPECT_TRUE(run_until([&] { return tries_of("back0") >= 2 && !waiting_.empty(); }));
  EXPECT_THAT(waiting_.back(), HasSubstr("at most 59"));
  let_come_back("back0");
  EXPECT_TRUE(run_until([&] { return hellos_ == 1; }));
  wait_at_most(std::chrono::milliseconds(0));
  start({"down0"});
  EXPECT_TRUE(run_until([&] { return !failures_.empty(); })) << "unless it is told not to";
}

TEST_F(HostPatienceTest, HostsBehindOneThatIsDownAreStartedFromHere) {
  ::testing::internal::CaptureStderr();
  wait_at_most(std::chrono::minutes(1));
  start({"back0", "up1", "far2", "far3"}, 2);
  EXPECT_EQ(node(2).parent, 0U);
  EXPECT_TRUE(run_until([&] { return hellos_ == 3; }));
  EXPECT_FALSE(node(2).parent);
  EXPECT_EQ(tries_of("far2") + tries_of("far3"), 2);
  EXPECT_TRUE(run_until([&] { return !waiting_.empty(); }));
  let_come_back("back0");
  EXPECT_TRUE(run_until([&] { return hellos_ == 4; }));
  EXPECT_EQ(tries_of("far2") + tries_of("far3"), 2) << "once more, through the other";
  EXPECT_EQ(times_said("host back0 cannot be reached yet"), 1U);
}

TEST_F(HostPatienceTest, OneThatIsLostWhileOthersAreAwaitedIsTriedAgain) {
  ::testing::internal::CaptureStderr();
  wait_at_most(std::chrono::minutes(1));
  gives_up_ = false;
  start({"up0", "down1"});
  EXPECT_TRUE(run_until([&] { return hellos_ == 1; }));
  may_be_lost_ = true;
  node(0).link->kill_process();
  EXPECT_TRUE(run_until([&] { return node(0).link->is_lost(); }));
  EXPECT_TRUE(starts_->try_again_lost(0, "killed"));
  EXPECT_TRUE(run_until([&] { return hellos_ == 2; }));
  EXPECT_EQ(tries_of("up0"), 2);
  starts_->stop();
  EXPECT_FALSE(starts_->try_again_lost(0, "killed"));
  EXPECT_EQ(times_said("all hosts can be reached"), 0U);
}

}  // namespace
}  // namespace chainmail::launch
