// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher notices of its ranks, says of them and records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launcher/run_launcher.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class WatchingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-watching.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Checks what all records have.
  std::vector<nlohmann::json> events() const {
    std::ifstream file(folder_ + "/events.jsonl");
    std::vector<nlohmann::json> all;
    int generation = -1;
    int sequence = 0;
    for (std::string line; std::getline(file, line);) {
      all.push_back(nlohmann::json::parse(line));
      const bool is_first = all.back()["event"] == "job_started";
      sequence = is_first ? 0 : sequence + 1;
      generation += is_first ? 1 : 0;
      EXPECT_EQ(all.back()["sequence"], sequence);
      EXPECT_EQ(all.back()["generation"], generation);
      EXPECT_TRUE(all.size() < 2 || all.back()["time"] >= all[all.size() - 2]["time"]);
    }
    return all;
  }
  static nlohmann::json first(const std::vector<nlohmann::json>& all, const std::string& event) {
    for (const auto& each : all) {
      if (each["event"] == event) return each;
    }
    ADD_FAILURE() << "no event " << event;
    return {};
  }

  std::string folder_;
};

TEST_F(WatchingTest, EventsTellTheJobsLife) {
  const Result result =
      run_script({"-H", "localhost:2", "--output", folder_}, "[ $RANK = 0 ] || exit 3; sleep 60");
  EXPECT_EQ(result.code, 3);
  const auto all = events();
  EXPECT_EQ(all.front()["event"], "job_started");
  EXPECT_EQ(all.front()["node_of_rank"], nlohmann::json({0, 0}));
  EXPECT_EQ(first(all, "agent_up")["host"], "localhost");
  EXPECT_GT(first(all, "rank_started")["pid"], 1);
  EXPECT_EQ(first(all, "rank_exited")["code"], 3);
  EXPECT_EQ(first(all, "rank_lost")["cause"], "exited with code 3");
  EXPECT_EQ(first(all, "verdict")["rank"], 1);
  EXPECT_EQ(all.back()["event"], "job_ended");
  EXPECT_EQ(all.back()["code"], 3);
}

TEST_F(WatchingTest, EventsGoOnAfterARestart) {
  const Result result = run_script({"-n", "1", "--output", folder_, "--max-restarts", "1"},
                                   "[ $CHAINMAIL_GENERATION = 1 ] || exit 3");
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<int> codes;
  for (const auto& event : events()) {
    if (event["event"] == "job_ended") codes.push_back(event["code"]);
  }
  EXPECT_THAT(codes, ::testing::ElementsAre(3, 0));
  EXPECT_EQ(events().back()["generation"], 1);
}

TEST_F(WatchingTest, StopAndContinueAreEvents) {
  const Result result = run_script({"-n", "1", "--output", folder_},
                                   "(sleep 0.5; kill -CONT $$) & kill -STOP $$; sleep 1.5; exit 0");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0 on host localhost has been stopped by a signal"));
  const auto all = events();
  EXPECT_LT(first(all, "rank_stopped")["sequence"], first(all, "rank_continued")["sequence"]);
}

TEST_F(WatchingTest, ASignalIsAnEvent) {
  RunningLauncher launcher({"-n", "1", "--output", folder_, "sh", "-c", "echo up; sleep 60"});
  ASSERT_TRUE(launcher.wait_for_output("up", milliseconds(10000)));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(milliseconds(5000)), 143);
  EXPECT_EQ(first(events(), "ending")["reason"], "SIGTERM");
}

TEST_F(WatchingTest, EventsThatCannotBeWritten) {
  std::filesystem::create_symlink("/dev/full", folder_ + "/events.jsonl");
  const Result result = run_launcher({"-n", "1", "--output", folder_, "true"});
  EXPECT_EQ(result.code, 125) << "no rank failed, but a record is missing";
  EXPECT_THAT(result.err, HasSubstr("events.jsonl: No space left on device"));
}

TEST_F(WatchingTest, TheRankThatOthersWaitForHasStalled) {
  const Result result = run_launcher({"-H", "localhost:2", "--output", folder_, "--stall-timeout",
                                      "1", CHAINMAIL_TEST_PROBE, "stall"});
  EXPECT_EQ(result.code, 124);
  EXPECT_THAT(result.err, HasSubstr("rank 1 on host localhost has stalled: no progress for 1 s: "
                                    "stands at step 3, operation 4, where others that wait are at "
                                    "step 3, operation 5"));
  EXPECT_THAT(first(events(), "rank_lost")["cause"], HasSubstr("stalled"));
}

TEST_F(WatchingTest, AStartIsNoStall) {
  const Result result = run_launcher({"-n", "2", "-H", "localhost:2", "--output", folder_,
                                      "--stall-timeout", "0.2", "sleep", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(WatchingTest, AKillFromOutsideIsSaidWithWhatIsKnown) {
  const Result result = run_script({"-n", "1"}, "kill -9 $$");
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (Killed): the launcher did not send "
                                    "it"));
}

TEST_F(WatchingTest, AFullStoreEndsTheJobWithTheReason) {
  const Result result = run_launcher({"-n", "1", CHAINMAIL_TEST_PROBE, "hoard"});
  EXPECT_EQ(result.code, 125);
  EXPECT_THAT(result.err, HasSubstr("rank 0 on host localhost has asked for too much: the "
                                    "launcher's store is full"));
}

}  // namespace
}  // namespace chainmail::launch
