// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher notices of its ranks, says of them and records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/process/owner_tag.h"
#include "tests/launcher/jobs/run_launcher.h"

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

// The job's folder where no --output is given: below TMPDIR, which these tests have for themselves.
class JobFolderTest : public WatchingTest {
 protected:
  void SetUp() override {
    WatchingTest::SetUp();
    const char* before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_) {
      setenv("TMPDIR", before_->c_str(), 1);
    } else {
      unsetenv("TMPDIR");
    }
    WatchingTest::TearDown();
  }
  // A job gets its folder after a second.
  std::vector<std::filesystem::path> wait_for_job_folder() const {
    for (int i = 0; i < 3000; ++i) {
      const auto found = job_folders();
      const bool has_lines =
          !found.empty() &&
          text_of(found[0] / "events.jsonl").find("rank_started") != std::string::npos;
      if (has_lines) return found;
      usleep(10000);
    }
    return job_folders();
  }
  std::vector<std::filesystem::path> job_folders() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().filename().string().rfind("chainmail-job.", 0) == 0) found.push_back(entry);
    }
    return found;
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::optional<std::string> before_;
};

TEST_F(JobFolderTest, ItsEventsCanBeFollowedWhileTheJobRuns) {
  RunningLauncher launcher({"-n", "1", "sh", "-c", "echo up; sleep 60"});
  ASSERT_TRUE(launcher.wait_for_output("up", milliseconds(10000)));
  const auto folders = wait_for_job_folder();
  ASSERT_EQ(folders.size(), 1U);
  EXPECT_THAT(folders[0].string(), HasSubstr("." + std::to_string(launcher.pid()) + "."));
  EXPECT_EQ(std::filesystem::status(folders[0]).permissions(), std::filesystem::perms::owner_all);
  EXPECT_THAT(text_of(folders[0] / "events.jsonl"), HasSubstr("\"event\":\"rank_started\""));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(milliseconds(5000)), 143);
  EXPECT_TRUE(job_folders().empty());
}

TEST_F(JobFolderTest, NothingIsLeftByALauncherThatIsKilled) {
  RunningLauncher launcher({"-n", "1", "sh", "-c", "echo up; sleep 60"});
  ASSERT_TRUE(launcher.wait_for_output("up", milliseconds(10000)));
  EXPECT_EQ(wait_for_job_folder().size(), 1U);
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(milliseconds(5000)), 128 + SIGKILL);
  for (int i = 0; i < 200 && !job_folders().empty(); ++i) usleep(10000);
  EXPECT_TRUE(job_folders().empty());
}

// With all who would have cleared up: by a scheduler, or because the machine was switched off.
TEST_F(JobFolderTest, WhatJobsThatWereKilledAsAWholeHaveLeftIsRemoved) {
  const std::string tag = own_tag();
  ASSERT_FALSE(tag.empty());
  const std::size_t last = tag.rfind('-');
  const std::string gone = tag.substr(0, last + 1) + "1";  // such a process started long ago
  const std::string boot = "owner-00000000";
  const std::string other_boot = boot + tag.substr(boot.size());
  const std::size_t begin = boot.size() + 1;
  const std::string elsewhere = tag.substr(0, begin) + "7" + tag.substr(tag.find('-', begin));
  const std::vector<std::string> left = {"/chainmail-job.2." + gone + ".abcdef",
                                         "/chainmail-0123456789abcdef.mpi." + gone + ".abcdef",
                                         "/chainmail-agent." + gone + ".abcdefghij"};
  const std::vector<std::string> kept = {
      "/chainmail-job.2." + tag + ".abcdef", "/chainmail-agent." + elsewhere + ".abcdefghij",
      // Younger than this kernel's boot.
      "/chainmail-0123456789abcdef.job." + other_boot + ".abcdef", "/chainmail-job.2.abcdef",
      "/elses." + gone + ".abcdef"};
  for (const auto& names : {left, kept}) {
    for (const std::string& name : names) {
      std::filesystem::create_directory(folder_ + name);
      std::ofstream(folder_ + name + "/file") << "{}\n";
    }
  }
  std::string script = "for f in";
  for (const std::string& name : left) script += " " + folder_ + name;
  EXPECT_EQ(
      run_script({"-n", "1"}, script + "; do while [ -e $f ]; do sleep 0.05; done; done").code, 0);
  for (const std::string& name : kept) EXPECT_TRUE(std::filesystem::exists(folder_ + name)) << name;
}

TEST_F(JobFolderTest, AJobDoesWithout) {
  RunningLauncher launcher({"-n", "1", "sh", "-c", "echo up; sleep 1.5"});
  const std::string elsewhere = folder_ + ".elsewhere";
  std::filesystem::rename(folder_, elsewhere);
  usleep(1500000);
  std::filesystem::rename(elsewhere, folder_);
  EXPECT_EQ(launcher.wait(milliseconds(10000)), 0);
  EXPECT_EQ(launcher.err(), "");
  EXPECT_TRUE(job_folders().empty());
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

TEST_F(WatchingTest, RanksThatHaveEndedAreNamedWhereAllOthersStandStill) {
  const Result result = run_launcher({"-H", "localhost:3", "--output", folder_, "--stall-timeout",
                                      "1", CHAINMAIL_TEST_PROBE, "leave"});
  EXPECT_EQ(result.code, 124);
  EXPECT_THAT(result.err,
              HasSubstr("all ranks: no progress for 1 s: stands at step 3, operation 5; "
                        "rank 1 on host localhost ended before, with code 0"));
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
