// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What one process saves by itself, while others may do the same or calls fail.

#include "plugin/checkpoint/store/lone_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/one_rank_save.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::Fault;
using chainmail::testing::FaultyFileSystem;
using chainmail::testing::image_of;
using chainmail::testing::save;
using chainmail::testing::ScratchFolder;
using chainmail::testing::whole;

using Saved = std::map<std::int64_t, int>;

void save_value(FileSystem& files, const std::string& folder, std::int64_t iteration, int value) {
  FileImage image = image_of(value);
  save_alone(files, folder, iteration, image);
}

std::size_t entries_in(const std::string& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(LoneSave, IsAGenerationLikeAnyOther) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  save_value(*files, scratch.path() + "/new/run", 7, 1);
  EXPECT_EQ(whole(scratch.path() + "/new/run"), (Saved{{7, 1}}));
  save(*files, scratch.path() + "/new/run", 8, 2);
  EXPECT_EQ(whole(scratch.path() + "/new/run"), (Saved{{7, 1}, {8, 2}}));
}

TEST(LoneSave, LeavesWhatIsSavedAlready) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  save(*files, scratch.path(), 7, 1);
  save_value(*files, scratch.path(), 7, 2);
  EXPECT_EQ(whole(scratch.path()), (Saved{{7, 1}}));
}

TEST(LoneSave, SeveralProcessesMayDoItAtOnce) {
  const ScratchFolder scratch;
  std::vector<pid_t> writers;
  for (int i = 0; i < 6; ++i) {
    const pid_t writer = fork();
    if (writer == 0) {
      int code = 0;
      try {
        save_value(*posix_file_system(), scratch.path(), 7 + i % 2, 3);
      } catch (const std::exception&) {
        code = 1;
      }
      _exit(code);
    }
    writers.push_back(writer);
  }
  for (const pid_t writer : writers) {
    int status = -1;
    waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(whole(scratch.path()), (Saved{{7, 3}, {8, 3}}));
  EXPECT_EQ(entries_in(scratch.path()), 2U);
}

TEST(LoneSave, WhatIsLeftOfOneGoesWhenItIsOld) {
  const ScratchFolder scratch;
  for (const char* name : {"old", "new"}) {
    const std::string folder = scratch.path() + "/.will-host-" + name;
    std::filesystem::create_directories(folder + "/gen-000000000007.tmp");
    std::ofstream(folder + "/gen-000000000007.tmp/set-0.bin") << "half";
  }
  std::filesystem::last_write_time(
      scratch.path() + "/.will-host-old",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  save(*posix_file_system(), scratch.path(), 8, 1);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() + "/.will-host-old"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/.will-host-new"));
  EXPECT_EQ(whole(scratch.path()), (Saved{{8, 1}}));
}

TEST(LoneSave, EveryCallMayFail) {
  int calls = 0;
  {
    const ScratchFolder scratch;
    FaultyFileSystem counting({});
    save_value(counting, scratch.path(), 7, 2);
    calls = counting.calls();
  }
  ASSERT_GT(calls, 8);
  for (int at = 1; at <= calls; ++at) {
    SCOPED_TRACE("call " + std::to_string(at));
    const ScratchFolder scratch;
    save(*posix_file_system(), scratch.path(), 6, 1);
    FaultyFileSystem faulty({Fault::Kind::kError, at, ENOSPC});
    try {
      save_value(faulty, scratch.path(), 7, 2);
    } catch (const SystemError& error) {
      EXPECT_EQ(error.native_code(), ENOSPC);
    }
    const Saved saved = whole(scratch.path());
    EXPECT_TRUE(saved == (Saved{{6, 1}}) || saved == (Saved{{6, 1}, {7, 2}}));
    EXPECT_EQ(entries_in(scratch.path()), saved.size());
    save_value(*posix_file_system(), scratch.path(), 7, 2);
    EXPECT_EQ(whole(scratch.path()), (Saved{{6, 1}, {7, 2}}));
  }
}

}  // namespace
}  // namespace chainmail::internal
