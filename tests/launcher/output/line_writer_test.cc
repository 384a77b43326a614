// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that are written by a thread of their own.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/output/line_writer.h"

namespace chainmail::launch {
namespace {

class LineWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "line_writer.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(LineWriterTest, WritesWhatOnlyItsOwnerReads) {
  const std::string path = folder_ + "/new/events.jsonl";
  LineWriter writer(path);
  writer.write("one\n");
  writer.write("two\n");
  EXPECT_EQ(writer.finish(), "");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, "one\ntwo\n");
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
}

TEST_F(LineWriterTest, GoesOnOrBeginsAnew) {
  const std::string path = folder_ + "/events.jsonl";
  const auto text_after = [&path](bool goes_on) {
    LineWriter writer(path, goes_on);
    writer.write("line\n");
    EXPECT_EQ(writer.finish(), "");
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  EXPECT_EQ(text_after(false), "line\n");
  EXPECT_EQ(text_after(true), "line\nline\n");
  EXPECT_EQ(text_after(false), "line\n");
}

TEST_F(LineWriterTest, TakesNoMoreRoomThanTwoFiles) {
  const std::string path = folder_ + "/events.jsonl";
  LineWriter writer(path, false, 10);
  for (const char* line : {"one\n", "two\n", "three\n", "four\n", "five\n"}) writer.write(line);
  EXPECT_EQ(writer.finish(), "");
  const auto text_of = [](const std::string& name) {
    std::ifstream file(name);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  EXPECT_EQ(text_of(path), "four\nfive\n");
  EXPECT_EQ(text_of(path + ".1"), "three\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".2"));
}

TEST_F(LineWriterTest, SaysWhatIsLost) {
  LineWriter writer("/dev/full");
  writer.write("one\n");
  EXPECT_EQ(writer.finish(),
            "cannot write /dev/full: No space left on device; lines of it are lost");
}

}  // namespace
}  // namespace chainmail::launch
