// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is left on disk when a save fails, or ends, at any of its calls.

#include "plugin/checkpoint/store/generations.h"

#include <chainmail/checkpoint_error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/one_rank_save.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::Fault;
using chainmail::testing::FaultyFileSystem;
using chainmail::testing::save;
using chainmail::testing::ScratchFolder;
using chainmail::testing::whole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> iterations(const std::string& folder) {
  std::vector<std::int64_t> result;
  for (const auto& [iteration, value] : whole(folder)) result.push_back(iteration);
  return result;
}

int calls_of_a_save(bool replaces, int keep = 2, int parts = 0) {
  const ScratchFolder scratch;
  const auto real = posix_file_system();
  for (const int iteration : {10, 20, 30}) {
    save(*real, scratch.path(), iteration, iteration, keep, parts);
  }
  FaultyFileSystem counting({});
  save(counting, scratch.path(), replaces ? 30 : 40, 4, keep, parts);
  return counting.calls();
}

TEST(Generations, KeepsTheLastOnesAndNothingElse) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  for (int i = 1; i <= 6; ++i) save(*files, scratch.path(), i * 10, i, 3);
  EXPECT_THAT(iterations(scratch.path()), ElementsAre(40, 50, 60));
  std::size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    EXPECT_TRUE(entry.is_directory());
    ++entries;
  }
  EXPECT_EQ(entries, 3U);
}

TEST(Generations, ADamagedOneDoesNotPushOutAGoodOne) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  save(*files, scratch.path(), 10, 1);
  save(*files, scratch.path(), 20, 2);
  std::filesystem::remove(scratch.path() + "/" + generation_name(20) + "/set-0.bin");
  save(*files, scratch.path(), 30, 3);
  EXPECT_THAT(iterations(scratch.path()), ElementsAre(10, 30));
}

TEST(Generations, OneOfALaterIterationIsNotTouched) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  save(*files, scratch.path(), 100, 1);
  save(*files, scratch.path(), 10, 2, 1);
  EXPECT_THAT(iterations(scratch.path()), ElementsAre(10, 100));
}

TEST(Generations, TheSameIterationIsReplaced) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  save(*files, scratch.path(), 10, 1);
  save(*files, scratch.path(), 10, 2);
  EXPECT_EQ(whole(scratch.path()), (std::map<std::int64_t, int>{{10, 2}}));
}

TEST(Generations, ForeignNamesAreLeftAlone) {
  const ScratchFolder scratch;
  const auto files = posix_file_system();
  for (const char* const name :
       {"gen-", "gen-12", "gen-000000000010.bak", "other", "gen--00000000001"}) {
    std::filesystem::create_directory(scratch.path() + "/" + name);
  }
  save(*files, scratch.path(), 20, 1, 1);
  EXPECT_THAT(iterations(scratch.path()), ElementsAre(20));
  for (const char* const name :
       {"gen-", "gen-12", "gen-000000000010.bak", "other", "gen--00000000001"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/" + name)) << name;
  }
}

// A full disk and a device that fails, at every call: an error, and what was there is there.
void fail_at_every_call(bool replaces, int parts) {
  const int calls = calls_of_a_save(replaces, 2, parts);
  ASSERT_GT(calls, 10);
  for (const int code : {ENOSPC, EIO}) {
    for (int at = 1; at <= calls; ++at) {
      SCOPED_TRACE("call " + std::to_string(at) + (replaces ? " of a replacing save" : ""));
      const ScratchFolder scratch;
      const auto real = posix_file_system();
      save(*real, scratch.path(), 20, 2, 2, parts);
      save(*real, scratch.path(), 30, 3, 2, parts);
      FaultyFileSystem faulty({.kind = Fault::Kind::kError, .at = at, .code = code});
      EXPECT_THROW(save(faulty, scratch.path(), replaces ? 30 : 40, 4, 2, parts), SystemError);
      const auto left = whole(scratch.path());
      ASSERT_FALSE(left.empty());
      EXPECT_GE(left.rbegin()->first, 30);
      EXPECT_TRUE(replaces || left.rbegin()->first == 40 || left.at(30) == 3);
      // And the next save works.
      save(*real, scratch.path(), 50, 5, 2, parts);
      EXPECT_EQ(whole(scratch.path()).at(50), 5);
    }
  }
}

TEST(Generations, EveryCallMayFail) {
  for (const bool replaces : {false, true}) {
    for (const int parts : {0, 2}) fail_at_every_call(replaces, parts);
  }
}

// The machine goes down at every call, with all that was not flushed.
void end_at_every_call(bool replaces, int keep, int parts) {
  const int calls = calls_of_a_save(replaces, keep, parts);
  for (int at = 1; at <= calls; ++at) {
    SCOPED_TRACE("call " + std::to_string(at) + (replaces ? " of a replacing save" : ""));
    const ScratchFolder scratch;
    const auto real = posix_file_system();
    save(*real, scratch.path(), 20, 2, keep, parts);
    save(*real, scratch.path(), 30, 3, keep, parts);
    FaultyFileSystem faulty({.kind = Fault::Kind::kCrash, .at = at});
    EXPECT_THROW(save(faulty, scratch.path(), replaces ? 30 : 40, 4, keep, parts), SystemError);
    const auto left = whole(scratch.path());
    ASSERT_FALSE(left.empty());
    // Never half of each: the newest is the old 30, or what replaced or followed it.
    const auto [iteration, value] = *left.rbegin();
    EXPECT_TRUE((iteration == 30 && (value == 3 || (replaces && value == 4))) ||
                (iteration == 40 && value == 4 && !replaces))
        << iteration << " holds " << value;
    save(*real, scratch.path(), 50, 5, keep, parts);
    EXPECT_THAT(iterations(scratch.path()).back(), 50);
  }
}

TEST(Generations, EveryCallMayBeTheLast) {
  for (const bool replaces : {false, true}) {
    for (const int keep : {1, 2}) {
      for (const int parts : {0, 2}) end_at_every_call(replaces, keep, parts);
    }
  }
}

// A run whose folder, and those above it, were not there before.
TEST(Generations, TheFirstSaveOfANewRunSurvivesAPowerCut) {
  for (const std::string folder : {"/run", "/a/run", "/a/b/c/run", "/a//b/run", "/a/b/../run"}) {
    SCOPED_TRACE(folder);
    const ScratchFolder scratch;
    const std::string path = scratch.path() + folder;
    FaultyFileSystem files({});
    save(files, path, 10, 1);
    files.lose_what_is_not_flushed();
    EXPECT_EQ(whole(path), (std::map<std::int64_t, int>{{10, 1}}));
  }
}

TEST(Generations, EveryCallOfTheFirstSaveMayBeTheLast) {
  const std::string folder = "/a/b/run";
  int calls = 1;
  for (int at = 1; at <= calls; ++at) {
    SCOPED_TRACE("call " + std::to_string(at));
    const ScratchFolder scratch;
    const std::string path = scratch.path() + folder;
    FaultyFileSystem faulty({.kind = Fault::Kind::kCrash, .at = at});
    EXPECT_THROW(save(faulty, path, 10, 1), SystemError);
    // The next life finds nothing, or all.
    const auto left = whole(path);
    EXPECT_TRUE(left.empty() || left == (std::map<std::int64_t, int>{{10, 1}}));
    FaultyFileSystem files({});
    save(files, path, 20, 2);
    files.lose_what_is_not_flushed();
    EXPECT_EQ(whole(path).at(20), 2);
    calls = std::max(calls, files.calls());
  }
  EXPECT_GT(calls, 12);
}

TEST(Generations, AFolderThatOneMayNotReadIsNoObstacle) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/a/run";
  for (const int code : {EACCES, EIO}) {
    FaultyFileSystem faulty({.kind = Fault::Kind::kError, .at = 2, .code = code});
    std::filesystem::remove_all(scratch.path() + "/a");
    if (code == EACCES) {
      EXPECT_NO_THROW(save(faulty, path, 10, 1));
      EXPECT_THAT(iterations(path), ElementsAre(10));
    } else {
      EXPECT_THROW(save(faulty, path, 10, 1), SystemError);
    }
  }
}

TEST(Generations, AThousandFlippedBitsAreFound) {
  const ScratchFolder scratch;
  save(*posix_file_system(), scratch.path(), 10, 1);
  const std::string folder = scratch.path() + "/" + generation_name(10) + "/";
  std::mt19937_64 random(1);
  for (int flip = 0; flip < 1000; ++flip) {
    const std::string path = folder + (random() % 8 == 0 ? kManifestName : "set-0.bin");
    const auto bit = random() % (std::filesystem::file_size(path) * 8);
    const auto turn = [&] {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(bit / 8));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(bit / 8));
      file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
    };
    turn();
    const Generation generation = list_generations(scratch.path()).at(0);
    std::string found = generation.problem;
    if (generation.manifest) {
      try {
        (void)read_generation_file(generation, generation.manifest->files.at(0));
      } catch (const CheckpointError& error) {
        found = error.what();
      }
    }
    EXPECT_THAT(found, ::testing::ContainsRegex(
                           "manifest: |header: |index: |padding: |'model/[ab]' differs"))
        << path << " bit " << bit;
    turn();
  }
  EXPECT_THAT(iterations(scratch.path()), ElementsAre(10));
}

TEST(Generations, AWholeFileOfAnotherSaveIsRefused) {
  const ScratchFolder scratch;
  save(*posix_file_system(), scratch.path(), 10, 1);
  save(*posix_file_system(), scratch.path(), 20, 2);
  const Generation newest = list_generations(scratch.path()).at(0);
  std::filesystem::copy_file(scratch.path() + "/" + generation_name(10) + "/set-0.bin",
                             newest.folder + "/set-0.bin",
                             std::filesystem::copy_options::overwrite_existing);
  try {
    (void)read_generation_file(newest, newest.manifest->files.at(0));
    ADD_FAILURE() << "taken";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("set-0.bin: is not the file that the manifest names"));
  }
}

TEST(Generations, ALinkOrAnotherLengthIsNoFile) {
  const ScratchFolder scratch;
  save(*posix_file_system(), scratch.path(), 10, 1);
  const Generation generation = list_generations(scratch.path()).at(0);
  const ManifestFile& file = generation.manifest->files.at(0);
  const std::string path = generation.folder + "/set-0.bin";
  std::filesystem::rename(path, scratch.path() + "/moved");
  std::filesystem::create_symlink(scratch.path() + "/moved", path);
  EXPECT_THROW((void)read_generation_file(generation, file), CheckpointError);
  std::filesystem::remove(path);
  std::filesystem::rename(scratch.path() + "/moved", path);
  std::filesystem::resize_file(path, file.bytes + 1);
  EXPECT_THROW((void)read_generation_file(generation, file), CheckpointError);
  std::filesystem::resize_file(path, file.bytes);
  EXPECT_NO_THROW((void)read_generation_file(generation, file));
}

}  // namespace
}  // namespace chainmail::internal
