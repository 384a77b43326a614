// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Paths in outputs, which never lead out of them.

#include "launcher/jobs/commands/files/output_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "launcher/job/options.h"
#include "launcher/jobs/commands/files/remote_copy.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(OutputPath, IsCheckedByItsWords) {
  EXPECT_EQ(checked_path(""), "");
  EXPECT_EQ(checked_path("."), "");
  EXPECT_EQ(checked_path("./a//b/./c/"), "a/b/c");
  EXPECT_EQ(checked_path("..a/b.."), "..a/b..");
  for (const char* bad : {"..", "../a", "a/..", "a/../b", "/a", "//"}) {
    EXPECT_THROW((void)checked_path(bad), UsageError) << bad;
  }
}

TEST(OutputPath, IsFollowedInsideOnly) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.at("out/sub"));
  fs::create_directories(scratch.at("outside"));
  scratch.write("out/sub/file", "x");
  fs::create_symlink("sub", scratch.at("out/link"));
  fs::create_symlink(scratch.at("out/sub"), scratch.at("out/absolute"));
  fs::create_symlink("../outside", scratch.at("out/neighbour"));
  fs::create_symlink("loop", scratch.at("out/loop"));
  fs::create_symlink(scratch.at("out"), scratch.at("entry"));
  const std::string folder = scratch.at("entry");
  const std::string real = fs::canonical(scratch.at("out"));
  EXPECT_EQ(path_in(folder, ""), real);
  EXPECT_EQ(path_in(folder, "link/file"), real + "/sub/file");
  EXPECT_EQ(path_in(folder, "absolute"), real + "/sub");
  EXPECT_THROW((void)path_in(folder, "neighbour"), UsageError);
  EXPECT_THROW((void)path_in(folder, "nothing"), UsageError);
  EXPECT_THROW((void)path_in(folder, "sub/file/x"), UsageError);
  EXPECT_THROW((void)path_in(folder, "loop"), SystemError);
  EXPECT_THROW((void)path_in(scratch.at("nowhere"), ""), SystemError);
}

TEST(OutputPath, OfAJobByItsId) {
  FoundJob job{"/jobs/a", {}};
  job.record.outputs = {{"MODEL", "/m"}};
  job.record.inputs = {{"DATA", "/d"}};
  EXPECT_EQ(folder_of(job, "stdouterr"), "/jobs/a");
  job.record.stdouterr = "/logs";
  EXPECT_EQ(folder_of(job, "stdouterr"), "/logs");
  EXPECT_EQ(folder_of(job, "MODEL"), "/m");
  EXPECT_EQ(folder_of(job, "DATA"), "/d");
  EXPECT_THROW((void)folder_of(job, ""), UsageError);
}

TEST(OutputPath, WhatIsOfOneRunAlone) {
  const std::string uuid = "01234567-89ab-4cde-8f01-23456789abcd";
  EXPECT_EQ(uuid_folder_in("/a/jobs/n/" + uuid + "/sub/sub", uuid), "/a/jobs/n/" + uuid);
  EXPECT_EQ(uuid_folder_in("/a/" + uuid, uuid), "/a/" + uuid);
  EXPECT_EQ(uuid_folder_in("/a/" + uuid + "/", uuid), "/a/" + uuid);
  EXPECT_EQ(uuid_folder_in("/a/x" + uuid, uuid), "");
  EXPECT_EQ(uuid_folder_in("/a/b", uuid), "");
  EXPECT_EQ(uuid_folder_in("/a/" + uuid + "/..", uuid), "");
  EXPECT_EQ(uuid_folder_in("/../" + uuid, uuid), "");
  EXPECT_EQ(uuid_folder_in(uuid, uuid), "");
  EXPECT_EQ(uuid_folder_in("", uuid), "");
  EXPECT_EQ(uuid_folder_in("/a//b", ""), "");
}

TEST(RemoteCopy, QuotesWhatAShellWouldActUpon) {
  const std::string script = sending_script("/a'b$(x)", "c`d`'");
  EXPECT_THAT(script, HasSubstr(R"(folder='/a'\''b$(x)')"));
  EXPECT_THAT(script, HasSubstr(R"(path='c`d`'\''')"));
  EXPECT_THROW((void)copy_from_host("-oProxyCommand=x", "/a", "", "/nowhere", [] { return false; }),
               UsageError);
}

}  // namespace
}  // namespace chainmail::launch
