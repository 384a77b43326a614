// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a job ends, in the order of what agents are told; the times in between are not looked at.

#include "launcher/controller/shutdown.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/controller/membership.h"
#include "launcher/controller/signal_relay.h"
#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using test::FakeJob;

class ShutdownTest : public ::testing::Test {
 protected:
  ShutdownTest()
      : channel_(fake_.job, {[](auto, const auto&) {}, [](auto) {}, [](auto) {}}),
        shutdown_(fake_.job, channel_, [this] { are_starts_over_ = true; }),
        members_(fake_.job, channel_, shutdown_, [](auto) {}),
        signals_(fake_.job, shutdown_, {}) {
    fake_.say_hello(0);
    fake_.say_hello(1);
  }

  void start() {
    shutdown_.on_started();
    signals_.on_started();
  }

  // Runs the loop until the agent of `node` is told this signal; fails when the loop has no work
  // left before that.
  void run_until_told(std::uint32_t node, int signal_number) {
    bool is_told = told_signal(node) == signal_number;
    while (!is_told && fake_.job.io.run_one() > 0) is_told = told_signal(node) == signal_number;
    EXPECT_TRUE(is_told) << "signal " << signal_number;
  }

  // The signal in what the agent of `node` has been told, 0 for none.
  int told_signal(std::uint32_t node, AgentMessage type = AgentMessage::kSignalRanks) {
    int number = 0;
    for (const internal::Frame& frame : fake_.told(node)) {
      if (type_of(frame) == type) number = static_cast<int>(BodyReader(frame.body).u32());
    }
    return number;
  }

  // Both agents say that their ranks are gone, and end.
  void end_agents() {
    for (std::uint32_t node = 0; node < 2; ++node) {
      fake_.job.agents[node].all_exited = true;
      fake_.wire(node).has_ended = true;
    }
    shutdown_.on_ranks_gone();
    shutdown_.reap_agents();
  }

  static Options options() {
    Options options;
    options.timeout = std::chrono::milliseconds(1);  // counted when a test asks for it
    return options;
  }

  FakeJob fake_{{2, 1}, options()};
  bool are_starts_over_ = false;
  RankChannel channel_;
  Shutdown shutdown_;
  Membership members_;
  SignalRelay signals_;
};

TEST_F(ShutdownTest, AJobThatEndsByItselfHasNoCodeOfItsOwn) {
  start();
  EXPECT_TRUE(shutdown_.is_running());
  members_.on_exited(0, {0, false, 0});
  members_.on_exited(0, {1, false, 0});
  members_.on_exited(1, {2, false, 0});
  end_agents();
  EXPECT_EQ(shutdown_.phase(), Shutdown::Phase::kOver);
  EXPECT_FALSE(shutdown_.exit_code().has_value());
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kSuccess);
  EXPECT_EQ(shutdown_.end_reason(), "");
  EXPECT_TRUE(shutdown_.ending_since().has_value());
  EXPECT_FALSE(shutdown_.may_start_anew());
  EXPECT_TRUE(fake_.job.io.stopped());
}

TEST_F(ShutdownTest, AFailureBeforeTheStartKillsAndIsNoReasonForAnotherWorld) {
  shutdown_.fail({std::nullopt, exit_code::kLauncherError, "cannot start"});
  EXPECT_TRUE(are_starts_over_);
  EXPECT_EQ(told_signal(0), SIGKILL);
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kLauncherError);
  EXPECT_TRUE(shutdown_.failed_to_start());
  EXPECT_FALSE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, TheFirstFailingRanksCodeIsTheJobs) {
  start();
  members_.on_exited(1, {2, false, 7});
  run_until_told(0, SIGTERM);
  // What SIGTERM has done to others explains nothing.
  members_.on_exited(0, {0, true, SIGTERM});
  members_.on_exited(0, {1, false, 9});
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), 7);
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kRankFailed);
  EXPECT_EQ(shutdown_.end_reason(), "rank 2 on host n1 exited with code 7");
  EXPECT_TRUE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, AFailedJobThatDoesNotEndIsKilled) {
  start();
  members_.on_exited(1, {2, true, SIGSEGV});
  run_until_told(1, SIGTERM);
  run_until_told(1, SIGKILL);
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kSignalBase + SIGSEGV);
}

TEST_F(ShutdownTest, AnInterruptIsNoFailureAndASecondOneHurriesIt) {
  start();
  shutdown_.interrupt(SIGTERM);
  EXPECT_EQ(told_signal(0), SIGTERM);
  shutdown_.interrupt(SIGTERM);
  EXPECT_EQ(told_signal(0), SIGKILL);
  members_.on_exited(0, {0, true, SIGKILL});
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kSignalBase + SIGTERM);
  EXPECT_FALSE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, ASignalToEverythingOfTheJobIsOneEnd) {
  start();
  shutdown_.interrupt_from(1, SIGTERM);
  EXPECT_EQ(told_signal(0), SIGTERM);
  shutdown_.interrupt(SIGTERM);
  EXPECT_EQ(shutdown_.phase(), Shutdown::Phase::kTerminating);
  EXPECT_EQ(told_signal(0), 0);
  end_agents();
}

TEST_F(ShutdownTest, ALostHostIsTheJobsFailureAndNamesTheHost) {
  start();
  members_.on_host_lost(1, "nothing heard");
  EXPECT_TRUE(fake_.job.ranks[2].is_gone);
  EXPECT_FALSE(fake_.job.ranks[0].is_gone);
  EXPECT_EQ(shutdown_.lost_nodes(), (std::set<std::uint32_t>{1}));
  run_until_told(0, SIGTERM);
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kLauncherError);
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kHostLost);
  EXPECT_EQ(shutdown_.end_reason(), "lost host n1: nothing heard");
  EXPECT_TRUE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, WhoAsksForTheEndMayHurryIt) {
  start();
  shutdown_.interrupt_for("launcher stop", false);
  EXPECT_EQ(told_signal(0), SIGTERM);
  EXPECT_TRUE(shutdown_.was_interrupted());
  shutdown_.interrupt_for("launcher stop --now", true);
  EXPECT_EQ(told_signal(0), SIGKILL);
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kSignalBase + SIGTERM) << "the first word stands";
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kStopped);
  EXPECT_EQ(shutdown_.end_reason(), "launcher stop");
  EXPECT_FALSE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, AnEndAtOnceIsAKill) {
  start();
  shutdown_.interrupt_for("launcher stop --now", true);
  EXPECT_EQ(told_signal(1), SIGKILL);
  members_.on_exited(0, {0, true, SIGKILL});
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kSignalBase + SIGKILL);
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kStopped);
}

TEST_F(ShutdownTest, ARequestBeforeTheStartEndsTheStart) {
  shutdown_.interrupt_for("launcher stop", false);
  EXPECT_TRUE(are_starts_over_);
  EXPECT_EQ(told_signal(0), SIGKILL) << "there is no rank yet that could end in order";
  end_agents();
  EXPECT_EQ(shutdown_.end_kind(), EndKind::kStopped);
}

TEST_F(ShutdownTest, AllRanksHaveStartedOnce) {
  int times = 0;
  members_.tell_all_started([&times] { ++times; });
  start();
  const auto begin = [this](std::uint32_t node, std::uint32_t rank) {
    members_.on_started(node, make_frame(AgentMessage::kRankStarted,
                                         BodyWriter().u32(rank).u32(7).text("").take()));
  };
  begin(0, 0);
  begin(1, 2);
  EXPECT_EQ(times, 0);
  EXPECT_FALSE(members_.all_started_at().has_value());
  begin(0, 1);
  begin(0, 1);
  EXPECT_EQ(times, 1);
  EXPECT_TRUE(members_.all_started_at().has_value());
  members_.on_step(0, {3, 10, 0});
  members_.on_step(2, {2, 50, 0});
  EXPECT_EQ(members_.most_progress().steps, 3U);
  EXPECT_EQ(members_.most_progress().operations, 50U);
  end_agents();
}

TEST_F(ShutdownTest, TheTimeLimitEndsAJobWithItsOwnCode) {
  start();
  shutdown_.limit_time(std::chrono::milliseconds(1));
  run_until_told(0, SIGTERM);
  end_agents();
  EXPECT_EQ(shutdown_.exit_code(), exit_code::kTimeLimit);
  EXPECT_FALSE(shutdown_.may_start_anew());
}

TEST_F(ShutdownTest, AStrangersRankIsRefusedAndChangesNothing) {
  start();
  EXPECT_THROW(members_.on_exited(0, {2, false, 1}), SystemError);
  EXPECT_FALSE(fake_.job.ranks[2].is_gone);
  EXPECT_TRUE(shutdown_.is_running());
  end_agents();
}

TEST_F(ShutdownTest, ASignalThatAnnouncesGoesOnOnceToAllHosts) {
  start();
  const std::string body = BodyWriter().u32(SIGUSR1).u8(1).take();
  signals_.on_frame(1, {static_cast<internal::JobMessage>(AgentMessage::kSignalled), 0, body});
  EXPECT_EQ(told_signal(0, AgentMessage::kPassSignal), SIGUSR1);
  EXPECT_EQ(told_signal(1, AgentMessage::kPassSignal), 0);  // it has passed it itself
  signals_.on_frame(0, {static_cast<internal::JobMessage>(AgentMessage::kSignalled), 0, body});
  EXPECT_EQ(told_signal(0, AgentMessage::kPassSignal), 0);
  EXPECT_EQ(told_signal(1, AgentMessage::kPassSignal), 0);
  EXPECT_TRUE(shutdown_.is_running());
  end_agents();
}

TEST_F(ShutdownTest, ASignalThatIsNoneForAJobIsNonsense) {
  start();
  const std::string body = BodyWriter().u32(SIGSEGV).u8(0).take();
  EXPECT_THROW(
      signals_.on_frame(0, {static_cast<internal::JobMessage>(AgentMessage::kSignalled), 0, body}),
      SystemError);
  EXPECT_TRUE(shutdown_.is_running());
  end_agents();
}

class ElasticShutdownTest : public ::testing::Test {
 protected:
  ElasticShutdownTest() {
    Host host;
    host.name = "n0";
    (void)fake_.job.add_rank(fake_.job.add_node(host));
    fake_.say_hello(0);
    shutdown_.on_started();
  }
  static Options options() {
    Options options;
    options.elastic.max = 4;
    return options;
  }
  void end_agent() {
    fake_.job.agents[0].all_exited = true;
    fake_.wire(0).has_ended = true;
    shutdown_.on_ranks_gone();
    shutdown_.reap_agents();
  }

  FakeJob fake_{{1}, options()};  // hosts of its plan are not there yet
  RankChannel channel_{fake_.job, {[](auto, const auto&) {}, [](auto) {}, [](auto) {}}};
  Shutdown shutdown_{fake_.job, channel_, [] {}};
  Membership members_{fake_.job, channel_, shutdown_, [](auto) {}};
};

TEST_F(ElasticShutdownTest, TheJobOutlivesItsRanksUntilItMayEnd) {
  end_agent();
  EXPECT_TRUE(shutdown_.is_running());
  shutdown_.end_with_ranks();
  EXPECT_EQ(shutdown_.phase(), Shutdown::Phase::kOver);
  EXPECT_EQ(shutdown_.exit_code(), std::nullopt);
}

TEST_F(ElasticShutdownTest, AnEndWithACodeLeavesTimeForRanks) {
  fake_.job.agents[0].all_exited = false;
  shutdown_.end("too few ranks", 125, std::chrono::hours(1));
  EXPECT_EQ(shutdown_.phase(), Shutdown::Phase::kNotifying);
  EXPECT_EQ(shutdown_.exit_code(), 125);
  shutdown_.fail({0, 7, "exited with code 7"});
  EXPECT_EQ(shutdown_.exit_code(), 125) << "an answer to the end";
  end_agent();
  EXPECT_EQ(shutdown_.phase(), Shutdown::Phase::kOver);
}

TEST_F(ElasticShutdownTest, LossesAreForTheOwnerOfTheWorld) {
  std::vector<std::string> told;
  const auto tell = [&](std::uint32_t rank, int code, const std::string& cause) {
    told.push_back(std::to_string(rank) + " " + std::to_string(code) + " " + cause);
  };
  members_.decide_by(ElasticFates{
      .on_ended = tell,
      .on_not_started = tell,
      .on_stopped = [&](std::uint32_t rank, bool is) { tell(rank, is ? 1 : 0, "stopped"); },
      .on_stalled = [&](std::uint32_t rank, const std::string& cause) { tell(rank, 0, cause); },
      .on_host_lost = [&](std::uint32_t node, const std::string& why) { tell(node, 0, why); },
      .world = [] { return nullptr; }});
  (void)fake_.job.add_rank(0);
  (void)fake_.job.add_rank(0);
  members_.on_stopped(0, make_frame(AgentMessage::kRankStopped, BodyWriter().u32(0).u8(1).take()));
  members_.on_exited(0, {0, true, SIGKILL});
  members_.on_not_started(0, 127, "was gone before");
  members_.on_not_started(1, 127, "no program");
  members_.on_host_lost(0, "silent");
  EXPECT_EQ(told, (std::vector<std::string>{"0 1 stopped", "0 137 was killed by signal 9 (Killed)",
                                            "1 127 no program", "0 0 silent"}));
  EXPECT_TRUE(fake_.job.ranks[2].is_gone);
  EXPECT_TRUE(shutdown_.is_running());
  EXPECT_FALSE(shutdown_.has_failed());
}

}  // namespace
}  // namespace chainmail::launch
