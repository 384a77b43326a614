// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Copies that are there as a whole or not at all.

#include "launcher/jobs/commands/files/tree_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const IsInterrupted kNever = [] { return false; };

TEST(TreeCopy, LeavesOutWhatIsNoFile) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.at("from/sub"));
  ASSERT_EQ(mkfifo(scratch.at("from/sub/pipe").c_str(), 0600), 0);
  scratch.write("from/file", "x");
  EXPECT_THAT(copy_tree(scratch.at("from"), scratch.at("to"), kNever),
              ElementsAre(scratch.at("from/sub/pipe")));
  EXPECT_EQ(scratch.read("to/file"), "x");
  EXPECT_TRUE(fs::is_empty(scratch.at("to/sub")));
  EXPECT_THROW((void)copy_tree(scratch.at("from"), scratch.at("to"), kNever), SystemError);
  EXPECT_THROW((void)copy_tree(scratch.at("nothing"), scratch.at("x"), kNever), SystemError);
}

TEST(TreeCopy, IsInterrupted) {
  const ScratchFolder scratch;
  scratch.write("from", "x");
  try {
    (void)copy_tree(scratch.at("from"), scratch.at("to"), [] { return true; });
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.native_code(), EINTR);
  }
}

TEST(CopyPlace, PublishesWholeThings) {
  const ScratchFolder scratch;
  scratch.write("file", "old");
  {
    CopyPlace place(scratch.at("file"));
    EXPECT_THAT(copy_tree(scratch.at("file"), place.path() + "/copy", kNever), IsEmpty());
    fs::resize_file(place.path() + "/copy", 1);
    EXPECT_EQ(scratch.read("file"), "old");
    place.publish("copy");
  }
  EXPECT_EQ(scratch.read("file"), "o");
  {
    CopyPlace place(scratch.at("folder"));
    fs::create_directory(place.path() + "/copy");
    fs::permissions(place.path() + "/copy", fs::perms(0555));
    place.publish("copy");
    fs::create_directory(place.path() + "/copy");
    // Nothing that is there is replaced by a folder.
    EXPECT_THROW(place.publish("copy"), SystemError);
  }
  EXPECT_EQ(fs::status(scratch.at("folder")).permissions(), fs::perms(0555));
  { const CopyPlace place(scratch.at("other")); }
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(scratch.path())) ++entries;
  EXPECT_EQ(entries, 2U);
  EXPECT_THROW(CopyPlace(scratch.at("no/such")), SystemError);
}

}  // namespace
}  // namespace chainmail::launch
