// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A file that is edited in all the ways that editors and programs have.

#include "launcher/files/watched_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WatchedFolderTest : public ::testing::Test {
 protected:
  WatchedFolderTest() {
    std::string name = fs::temp_directory_path() / "watched_folder.XXXXXX";
    folder_ = mkdtemp(name.data());
    write("hosts", "n1\n");
    watch_hosts();
  }
  ~WatchedFolderTest() override {
    watch_.reset();
    fs::remove_all(folder_);
  }

  void watch_hosts() {
    watch_ = std::make_unique<WatchedFolder>(
        io_, folder_.string(), "hosts", "n1\n",
        WatchedFolder::Callbacks{
            .on_text = [this](const auto& text) { told_.push_back(text); },
            .on_unreadable = [this](const auto& why) { told_.push_back("unreadable: " + why); },
            .on_there = [this](const auto& file) { told_.push_back("there: " + file); },
            .on_missing = [this](const auto& file) { told_.push_back("missing: " + file); },
            .on_not_made = [this](
                               const auto& name,
                               const auto& why) { told_.push_back(name + " not made: " + why); }});
  }
  // At once: a machine may be slow between two calls.
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / "being_written") << text;
    fs::rename(folder_ / "being_written", folder_ / name);
  }
  // Until so much was told; no longer than a slow machine needs.
  void run_until(std::size_t count) {
    const auto end = steady_clock::now() + std::chrono::seconds(30);
    while (told_.size() < count && steady_clock::now() < end) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(20));
    }
  }
  void run_for(std::chrono::milliseconds time) {
    const auto work = asio::make_work_guard(io_);
    io_.restart();
    io_.run_for(time);
  }

  asio::io_context io_;
  fs::path folder_;
  std::vector<std::string> told_;
  std::unique_ptr<WatchedFolder> watch_;
};

TEST_F(WatchedFolderTest, WhatIsKnownIsNotTold) {
  run_for(std::chrono::milliseconds(1500));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(WatchedFolderTest, EditsAndRenamesAreTold) {
  std::ofstream(folder_ / "hosts", std::ios::app) << "n2\n";
  run_until(1);
  write("new", "n3\n");
  fs::rename(folder_ / "new", folder_ / "hosts");
  run_until(2);
  EXPECT_THAT(told_, ElementsAre("n1\nn2\n", "n3\n"));
}

TEST_F(WatchedFolderTest, AnEditInPiecesIsToldOnce) {
  std::ofstream file(folder_ / "hosts");
  steady_clock::duration longest{};
  auto before = steady_clock::now();
  for (const char* piece : {"n1\nn", "2\nn3", "\n"}) {
    file << piece << std::flush;
    longest = std::max(longest, steady_clock::now() - std::exchange(before, steady_clock::now()));
    run_for(std::chrono::milliseconds(60));
  }
  file.close();
  run_until(1);
  if (longest >= WatchedFolder::kSettle) GTEST_SKIP() << "the machine was too slow to edit at once";
  EXPECT_THAT(told_, ElementsAre("n1\nn2\nn3\n"));
}

TEST_F(WatchedFolderTest, AFileThatIsAwayComesBack) {
  fs::remove(folder_ / "hosts");
  run_until(1);
  ASSERT_THAT(told_, ElementsAre(HasSubstr("unreadable: cannot open hosts file")));
  write("hosts", "n1\n");
  run_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(told_.size(), 1U) << "it says what it said before: " << told_.back();
  write("hosts", "n4\n");
  run_until(2);
  EXPECT_EQ(told_.back(), "n4\n");
}

// As where a server is down, which changes nothing of the file when it is back.
TEST_F(WatchedFolderTest, AFileThatCouldNotBeReadIsReadLater) {
  std::ofstream file(folder_ / "hosts", std::ios::app);
  run_until(0);  // UndefinedBehaviorSanitizer takes a pipe when it meets a type for the first time
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  rlimit none = usual;
  none.rlim_cur = 3;  // of which none is free
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  file << "n2\n" << std::flush;
  run_until(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_THAT(told_, ElementsAre(HasSubstr("Too many open files")));
  run_until(2);
  EXPECT_EQ(told_.back(), "n1\nn2\n");
}

TEST_F(WatchedFolderTest, AFileThatIsNotThereAtTheBeginningIsWaitedForAMoment) {
  watch_.reset();
  fs::remove(folder_ / "hosts");
  const auto begin = steady_clock::now();
  watch_hosts();
  run_until(1);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("unreadable: cannot open hosts file")));
  EXPECT_GE(steady_clock::now() - begin, WatchedFolder::kSettle);
}

TEST_F(WatchedFolderTest, APipeInItsPlaceIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::rename(folder_ / "pipe", folder_ / "hosts");
  run_until(1);
  ASSERT_THAT(told_, ElementsAre(HasSubstr("hosts is not a file")));
  fs::remove(folder_ / "hosts");
  write("hosts", "n3\n");
  run_until(2);
  EXPECT_EQ(told_.back(), "n3\n");
}

TEST_F(WatchedFolderTest, FilesThatAreWaitedForAreToldToBeMissingOnce) {
  watch_->ask_for("ready");
  run_until(1);
  write("ready", "");
  run_until(2);
  EXPECT_THAT(told_, ElementsAre("missing: ready", "there: ready"));
  watch_->ask_for("ready");
  run_until(3);
  EXPECT_EQ(told_.back(), "there: ready");
}

TEST_F(WatchedFolderTest, MakesFiles) {
  watch_->make("ready");
  watch_->ask_for("ready");
  run_until(1);
  EXPECT_THAT(told_, ElementsAre("there: ready"));
  watch_->make("no/such/folder");
  run_until(2);
  EXPECT_THAT(told_.back(), HasSubstr("no/such/folder not made: cannot make"));
}

}  // namespace
}  // namespace chainmail::launch
