// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Signals to a running launcher: everything ends, in time and with the right code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "tests/launcher/jobs/run_launcher.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class SignalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Ranks inherit it; it tells them from those of tests that run at the same time.
    mark_ = "CHAINMAIL_SIGNAL_TEST=" + std::to_string(getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    putenv(mark_.data());
  }
  void TearDown() override {
    unsetenv("CHAINMAIL_SIGNAL_TEST");
    EXPECT_TRUE(all_left()) << "processes were left behind";
  }
  // This test program does not count: its environment at exec does not have the mark.
  bool all_left() const { return all_gone(mark_, milliseconds(2000)); }

  std::string mark_;
};

TEST_F(SignalTest, CtrlCEndsRanksAndTheirChildren) {
  RunningLauncher launcher(
      {"-H", "localhost:2", "sh", "-c", "setsid sleep 300 & sleep 300 & echo up; wait"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(milliseconds(3000)), 130);
}

TEST_F(SignalTest, SigtermLeavesTimeToFinish) {
  RunningLauncher launcher(
      {"-H", "localhost:2", "sh", "-c",
       "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(milliseconds(5000)), 143);
  EXPECT_THAT(launcher.out(), HasSubstr("saved\nsaved"));
}

// The process that a scheduler knows: on this machine the launcher's child.
pid_t agent_of(pid_t launcher) {
  const std::string own = std::to_string(launcher);
  std::ifstream children("/proc/" + own + "/task/" + own + "/children");
  for (pid_t child = 0; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/cmdline");
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    if (words.find("--agent") != std::string::npos) return child;
  }
  return -1;
}

TEST_F(SignalTest, SigtermToAnAgentLeavesTimeToFinishToo) {
  for (const bool launcher_as_well : {false, true}) {
    RunningLauncher launcher(
        {"-H", "localhost:2", "sh", "-c",
         "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"});
    ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
    const pid_t agent = agent_of(launcher.pid());
    ASSERT_GT(agent, 0);
    kill(agent, SIGTERM);
    if (launcher_as_well) {
      std::this_thread::sleep_for(milliseconds(200));
      launcher.signal(SIGTERM);
    }
    EXPECT_EQ(launcher.wait(milliseconds(5000)), 143);
    EXPECT_THAT(launcher.out(), HasSubstr("saved\nsaved"));
    EXPECT_THAT(launcher.err(), HasSubstr("SIGTERM to the agent on host localhost"));
  }
}

TEST_F(SignalTest, GraceIsTheLimit) {
  RunningLauncher launcher({"-H", "localhost:2", "--grace", "0.3", "sh", "-c",
                            "trap '' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(milliseconds(3000)), 143);
}

TEST_F(SignalTest, SignalDoesNotProlongTheEndOfAFailure) {
  for (const int number : {SIGTERM, SIGINT}) {
    RunningLauncher launcher(
        {"-H", "localhost:2", "--grace", "60", "sh", "-c",
         "[ $RANK = 1 ] && exit 3; trap '' TERM; while :; do sleep 0.05; done"});
    for (int i = 0; i < 1000 && launcher.err().find("exited with code 3") == std::string::npos;
         ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    launcher.signal(number);
    EXPECT_EQ(launcher.wait(milliseconds(3000)), 3) << "the failure's code stands";
  }
}

TEST_F(SignalTest, SecondCtrlCKills) {
  RunningLauncher launcher({"-H", "localhost:2", "--grace", "60", "sh", "-c",
                            "trap '' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
  launcher.signal(SIGINT);
  std::this_thread::sleep_for(milliseconds(200));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(milliseconds(3000)), 130);
}

TEST_F(SignalTest, StoppedRanksEndToo) {
  RunningLauncher launcher({"-H", "localhost:2", "sh", "-c", "echo up; kill -STOP $$; sleep 300"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup", milliseconds(10000)));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(milliseconds(3000)), 143);
}

TEST_F(SignalTest, KilledLauncherTakesAllWithIt) {
  RunningLauncher launcher(
      {"-H", "localhost:4", "sh", "-c", "trap '' TERM HUP; setsid sleep 300 & echo up; sleep 300"});
  ASSERT_TRUE(launcher.wait_for_output("up\nup\nup\nup", milliseconds(10000)));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(milliseconds(1000)), 137);
}

TEST_F(SignalTest, KilledLauncherTakesAShellThatStillConnects) {
  RunningLauncher launcher(
      {"-H", "far.invalid:1", "--rsh", "sh -c 'exec sleep 300'", "sh", "-c", "exit"});
  // A process has no environment in the moment of its exec: counted once more it may be missing.
  std::size_t seen = 0;
  for (int i = 0; i < 500 && seen < 2; ++i) {
    seen = processes_with(mark_).size();
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_GE(seen, 2U) << launcher.err();  // later a reaper, too
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(milliseconds(1000)), 137);
}

TEST_F(SignalTest, NohupIsRespected) {
  signal(SIGHUP, SIG_IGN);  // what the launcher inherits
  RunningLauncher launcher({"-n", "1", "sh", "-c", "echo up; sleep 0.5; echo end"});
  signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(launcher.wait_for_output("up", milliseconds(10000)));
  launcher.signal(SIGHUP);
  EXPECT_EQ(launcher.wait(milliseconds(5000)), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("end"));
}

TEST_F(SignalTest, AnyMomentOfTheStart) {
  std::mt19937 random(20260102);
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  for (int round = 0; round < 60; ++round) {
    const int number = kSignals[round % 3];
    RunningLauncher launcher({"-H", "localhost:3,127.0.0.1:1", "sleep", "300"});
    // Before the launcher has set its handlers it simply dies, which is the same code.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    launcher.signal(number);
    ASSERT_EQ(launcher.wait(milliseconds(2500)), 128 + number) << "round " << round;
    ASSERT_TRUE(all_left()) << "round " << round;
  }
}

}  // namespace
}  // namespace chainmail::launch
