// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Copies of a job's output, and what hosts print while they are prepared.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/targets/host_files.h"
#include "launcher/output/targets/output_copier.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class TargetsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-targets.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  internal::UniqueFd opened(const std::string& name) const {
    return internal::UniqueFd(
        open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  std::vector<std::string> losses_;
};

TEST_F(TargetsTest, EachCopyHasWholeLinesOfItsOwnStream) {
  const internal::UniqueFd out = opened("out");
  const internal::UniqueFd err = opened("err");
  OutputCopier copier({out.get(), err.get(), -1},
                      [this](const auto& why) { losses_.push_back(why); });
  copier.write(0, 1, "", "begun ");
  copier.write(1, 2, "", "error\n");
  copier.write(0, 1, "", "ended\n");
  copier.write(0, 1, "", "broken");
  copier.write(1, 1, "", "other\n");
  copier.log("launcher: nowhere\n");
  copier.finish();
  EXPECT_EQ(text_of("out"), "begun ended\nbroken\nother\n");
  EXPECT_EQ(text_of("err"), "error\n");
  EXPECT_THAT(losses_, IsEmpty());
}

TEST_F(TargetsTest, LinesHaveTheirPrefixOnce) {
  const internal::UniqueFd out = opened("out");
  OutputCopier copier({out.get(), -1, -1}, [](const auto&) {});
  copier.write(0, 1, "[n/0] ", "a\nb");
  copier.write(0, 1, "[n/0] ", "c\n");
  copier.write(1, 1, "[n/1] ", "d");
  copier.write(0, 1, "[n/0] ", "e\n");
  EXPECT_EQ(text_of("out"), "[n/0] a\n[n/0] bc\n[n/1] d\n[n/0] e\n");
}

TEST_F(TargetsTest, TheLogHasTimes) {
  const internal::UniqueFd log = opened("log");
  OutputCopier copier({-1, -1, log.get()}, [](const auto&) {});
  copier.log("launcher: said\n");
  EXPECT_THAT(text_of("log"), MatchesRegex("[0-9-]+ [0-9:]+\\.[0-9][0-9][0-9] launcher: said\n"));
}

TEST_F(TargetsTest, AFullDiskIsSaidOnceAndDoesNotStopTheOthers) {
  const internal::UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const internal::UniqueFd err = opened("err");
  OutputCopier copier({full.get(), err.get(), -1},
                      [this](const auto& why) { losses_.push_back(why); });
  for (int i = 0; i < 3; ++i) copier.write(0, 1, "", "lost\n");
  copier.write(0, 2, "", "kept\n");
  copier.finish();
  EXPECT_THAT(losses_, ElementsAre("cannot write /dev/full: No space left on device"));
  EXPECT_EQ(text_of("err"), "kept\n");
}

OutputOptions silent_options(OutputCopies copies) {
  OutputOptions options;
  options.is_silent = true;
  options.copies = copies;
  options.host_of_rank = {"n0", "n1"};
  return options;
}

TEST_F(TargetsTest, ASilentSinkWritesOnlyToItsCopies) {
  const internal::UniqueFd out = opened("out");
  const internal::UniqueFd err = opened("err");
  const internal::UniqueFd log = opened("log");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    OutputSink sink(silent_options({out.get(), err.get(), log.get()}));
    sink.write(0, 1, "one\n");
    sink.write(1, 2, "two\n");
    sink.say("launcher: three");
    sink.write(0, 1, "no end");
    sink.end_rank(0);
    EXPECT_TRUE(sink.finish());
    EXPECT_EQ(sink.loss(), "");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(text_of("out"), "one\nno end");
  EXPECT_EQ(text_of("err"), "two\nlauncher: three\n");
  EXPECT_THAT(text_of("log"), EndsWith(" launcher: three\n"));
}

TEST_F(TargetsTest, BothPlacesHaveAllBytesOfManyWriters) {
  const internal::UniqueFd out = opened("out");
  std::string wanted[2];
  ::testing::internal::CaptureStdout();
  {
    OutputOptions options = silent_options({out.get(), -1, -1});
    options.is_silent = false;
    OutputSink sink(std::move(options));
    for (int i = 0; i < 2000; ++i) {
      const auto rank = static_cast<std::uint32_t>(i % 2);
      const std::string piece =
          std::to_string(rank) + ":" + std::to_string(i) + (i % 6 < 4 ? "\n" : " ");
      wanted[rank] += piece;
      sink.write(rank, 1, piece);
    }
    EXPECT_TRUE(sink.finish());
  }
  const std::string shown = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(text_of("out"), shown);
  for (const char* text : {"0:0\n", "1:1999"}) EXPECT_THAT(shown, HasSubstr(text));
  EXPECT_EQ(shown.size() - static_cast<std::size_t>(std::count(shown.begin(), shown.end(), '\n')),
            wanted[0].size() + wanted[1].size() -
                static_cast<std::size_t>(std::count(wanted[0].begin(), wanted[0].end(), '\n') +
                                         std::count(wanted[1].begin(), wanted[1].end(), '\n')));
}

TEST_F(TargetsTest, ALostCopyIsNoLossOfTheJobs) {
  const internal::UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const internal::UniqueFd log = opened("log");
  OutputSink sink(silent_options({full.get(), -1, log.get()}));
  sink.write(0, 1, "lost\n");
  sink.write(0, 1, "lost\n");
  EXPECT_TRUE(sink.finish());
  EXPECT_EQ(sink.loss(), "cannot write /dev/full: No space left on device");
  const std::string text = text_of("log");
  EXPECT_THAT(text, HasSubstr("launcher: cannot write /dev/full"));
  EXPECT_EQ(text.find("cannot"), text.rfind("cannot")) << "said twice";
}

TEST_F(TargetsTest, WhatIsWrittenIsToldAlsoWhereNothingIsShown) {
  OutputSink sink(silent_options({}));
  sink.write(1, 2, "text\n");
  EXPECT_TRUE(sink.finish());
  const std::vector<WrittenOutput> written = sink.take_written();
  ASSERT_EQ(written.size(), 1U);
  EXPECT_EQ(written[0].rank, 1U);
  EXPECT_EQ(written[0].bytes, 5U);
}

TEST_F(TargetsTest, EachHostHasAFileOfItsOwn) {
  const std::string below = (folder_ / "deep" / "er").string();
  int calls = 0;
  {
    HostFiles files(below, {"n1", "n2", "a/b"}, false, [&calls] { ++calls; });
    files.write(0, 1, "out\n");
    files.write(0, 2, "err\n");
    files.write(2, 1, "odd\n");
    EXPECT_EQ(files.finish(), "");
    std::size_t bytes = 0;
    for (const HostFiles::Written& written : files.take_written()) bytes += written.bytes;
    EXPECT_EQ(bytes, 12U);
  }
  EXPECT_EQ(calls, 1) << "nobody has taken what was told";
  EXPECT_EQ(text_of("deep/er/prepare.n1.txt"), "out\nerr\n");
  EXPECT_EQ(text_of("deep/er/prepare.n2.txt"), "");
  EXPECT_EQ(text_of("deep/er/prepare.a_b.txt"), "odd\n");
  const auto permissions =
      std::filesystem::status(folder_ / "deep/er/prepare.n1.txt").permissions();
  EXPECT_EQ(permissions & std::filesystem::perms::others_all, std::filesystem::perms::none);
}

TEST_F(TargetsTest, ALaterWorldGoesOnBehindTheFirst) {
  for (const bool goes_on : {false, true, false}) {
    HostFiles files(folder_.string(), {"n1"}, goes_on, {});
    files.write(0, 1, "line\n");
    EXPECT_EQ(files.finish(), "");
    EXPECT_EQ(text_of("prepare.n1.txt"), goes_on ? "line\nline\n" : "line\n");
  }
}

TEST_F(TargetsTest, AFileThatCannotBeMadeLosesNoOther) {
  std::filesystem::create_directory(folder_ / "prepare.n1.txt");
  HostFiles files(folder_.string(), {"n1", "n2"}, false, {});
  files.write(0, 1, "lost\n");
  files.write(1, 1, "kept\n");
  EXPECT_THAT(files.finish(), AllOf(HasSubstr("prepare.n1.txt"), HasSubstr("is lost")));
  EXPECT_EQ(text_of("prepare.n2.txt"), "kept\n");
  EXPECT_EQ(files.take_written().size(), 2U) << "whoever writes must not wait for ever";
}

}  // namespace
}  // namespace chainmail::launch
