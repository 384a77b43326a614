// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The two logs of an elastic job's hosts, in the life of one hosts file.

#include "launcher/controller/elastic/machine/world_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using membership::Change;
using membership::LogRecord;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

LogRecord record_of(std::uint64_t sequence, Change change, const std::string& address,
                    const std::string& cause) {
  return {sequence, change, address, 2, 7, 3, cause};
}

class WorldLogTest : public ::testing::Test {
 protected:
  WorldLogTest() {
    std::string name = fs::temp_directory_path() / "world_log.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ / "host_worker";
  }
  ~WorldLogTest() override { fs::remove_all(folder_); }

  std::unique_ptr<WorldLog> open(WorldLog::Start start = WorldLog::Start::kNew) {
    return std::make_unique<WorldLog>(file_.string(), start,
                                      [this](std::string line) { said_.push_back(line); });
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  fs::path folder_;
  fs::path file_;
  std::vector<std::string> said_;
};

TEST_F(WorldLogTest, ForProgramsHasALineForEachChange) {
  auto log = open();
  log->record(record_of(0, Change::kAdded, "10.0.0.1", "first world"));
  log->record(record_of(1, Change::kLost, "10.0.0.1", "exited with code 3"));
  EXPECT_EQ(log->finish(), "");
  EXPECT_THAT(text_of("host_worker_log"),
              MatchesRegex("0 ADDED 10.0.0.1 [0-9]+ 2 7 3 first world\n"
                           "1 LOST 10.0.0.1 [0-9]+ 2 7 3 exited with code 3\n"));
}

TEST_F(WorldLogTest, ForPeopleHasTheSameWordsAsTheyAreTold) {
  auto log = open();
  log->record(record_of(0, Change::kAdded, "h", "joined"));
  log->record(record_of(1, Change::kRemoved, "h", "drained"));
  log->record(record_of(2, Change::kRefused, "h", "no"));
  EXPECT_EQ(log->finish(), "");
  const std::string head = "....-..-.. ..:..:..,... INFO ";
  const std::string file = file_.string();
  ASSERT_THAT(said_, SizeIs(5));
  EXPECT_THAT(said_[0], MatchesRegex(head + "Created worker host file " + file));
  EXPECT_THAT(said_[1], MatchesRegex(head + "Created worker host log file " + file + "_log"));
  EXPECT_THAT(said_[2], MatchesRegex(head + "Added host:h to new worker host"));
  EXPECT_THAT(said_[3], MatchesRegex(head + "Removed host:h at step 7"));
  EXPECT_THAT(said_[4], MatchesRegex(head + "Refused host:h: no"));
  std::string all;
  for (const std::string& line : said_) all += line + "\n";
  EXPECT_EQ(text_of("host_worker.log"), all);
}

TEST_F(WorldLogTest, ASecondJobCountsOnAndKnowsWhoIsMissing) {
  write("host_worker_log",
        "0 ADDED a 1 1 0 1 first world\n1 ADDED b 1 1 0 2 first world\n2 ADDED a 1 2 3 3 joined\n"
        "3 REFUSED c 1 2 3 3 no\n4 LOST a 1 3 4 2 killed\n5 ADD");
  auto log = open();
  EXPECT_EQ(log->past().next_sequence, 5U);
  EXPECT_THAT(log->past().members, ElementsAre("a", "b"));
  log->record(record_of(5, Change::kAdded, "d", "joined"));
  EXPECT_EQ(log->finish(), "");
  EXPECT_THAT(text_of("host_worker_log"), HasSubstr("killed\n5 ADDED d "));
}

TEST_F(WorldLogTest, ALogOfManyChangesIsReadToItsEnd) {
  std::string text;
  constexpr std::size_t kMoreThanAHostsFile = std::size_t{17} << 20;
  std::uint64_t sequence = 0;
  for (; text.size() < kMoreThanAHostsFile; ++sequence) {
    text += std::to_string(sequence) + (sequence % 2 == 0 ? " ADDED" : " LOST") +
            " 10.0.0.1 1764230000123456789 7 100 3 killed by signal 9\n";
  }
  write("host_worker_log", text);
  EXPECT_EQ(open()->past().next_sequence, sequence);
}

TEST_F(WorldLogTest, WithoutAFolderTheJobGoesOn) {
  file_ = folder_ / "missing" / "host_worker";
  fs::create_directory(folder_ / "missing");
  fs::create_directory(folder_ / "missing" / "host_worker_log");
  auto log = open();
  log->record(record_of(0, Change::kAdded, "h", "joined"));
  EXPECT_EQ(log->finish(), "");
  EXPECT_THAT(said_.front(), HasSubstr("the job goes on without this log"));
}

TEST_F(WorldLogTest, ThereMustBeAJobToGoOnWith) {
  try {
    (void)open(WorldLog::Start::kResume);
    ADD_FAILURE() << "went on with nothing";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no elastic job has written into "));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  open()->record(record_of(0, Change::kAdded, "h", "joined"));
  EXPECT_EQ(open(WorldLog::Start::kResume)->past().next_sequence, 1U);
}

TEST_F(WorldLogTest, NothingIsWrittenWithoutAHostsFile) {
  WorldLog log("", WorldLog::Start::kNew, [this](std::string line) { said_.push_back(line); });
  log.record(record_of(0, Change::kAdded, "h", "joined"));
  EXPECT_EQ(log.finish(), "");
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THAT(said_, SizeIs(1));
}

TEST(ReplayedLog, PassesOverWhatIsNoLine) {
  const PastLog past = replay_log("some text\n7 ADDED h 1 1 0 1 x\n\nx ADDED y 1 1\n");
  EXPECT_EQ(past.next_sequence, 8U);
  EXPECT_THAT(past.members, ElementsAre("h"));
  EXPECT_THAT(replay_log("").members, IsEmpty());
}

}  // namespace
}  // namespace chainmail::launch
