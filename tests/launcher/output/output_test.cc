// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the output of many ranks becomes one: whole lines, prefixes, the last lines of a failure.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "launcher/output/line_merger.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/output_sink.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LineMergerTest : public ::testing::Test {
 protected:
  void add(std::int64_t rank, const std::string& text) { merger_.add({rank, 1}, text); }
  void pass(std::chrono::milliseconds time) {
    now_ += time;
    merger_.tick();
  }

  LineMerger::Clock::time_point now_{};
  std::string shown_;
  LineMerger make(bool carriage_returns) {
    return LineMerger(
        carriage_returns,
        [this](const LineMerger::Shown& shown) {
          if (shown.breaks) shown_ += "|";
          shown_ += shown.text;
        },
        [this](const Writer& writer, std::size_t bytes) {
          taken_[static_cast<std::size_t>(writer.rank)] += bytes;
        },
        [this] { return now_; });
  }
  std::size_t taken_[3] = {0, 0, 0};
  LineMerger merger_ = make(false);
};

TEST_F(LineMergerTest, WholeLinesPassAtOnce) {
  add(0, "a\n");
  add(1, "b\nc\n");
  EXPECT_EQ(shown_, "a\nb\nc\n");
  EXPECT_FALSE(merger_.next_tick());
}

TEST_F(LineMergerTest, OthersWaitForTheEndOfALongLine) {
  add(0, "long");
  add(1, "b1\n");
  add(2, "c");
  add(1, "b2\n");
  EXPECT_EQ(shown_, "long");
  EXPECT_TRUE(merger_.next_tick());
  add(0, "er");
  add(0, "\nnext");
  // Rank 0's next line is open now; the others wait on.
  EXPECT_EQ(shown_, "longer\nnext");
  add(0, "\n");
  EXPECT_EQ(shown_, "longer\nnext\nb1\nc");
  add(2, "c\n");
  EXPECT_EQ(shown_, "longer\nnext\nb1\ncc\nb2\n");
}

TEST_F(LineMergerTest, ALongLineMayStandStillForLonger) {
  const std::string part(LineMerger::kLongLineBytes, 'x');
  add(0, part);
  add(1, "b\n");
  pass(LineMerger::kMaxStandstill);
  EXPECT_EQ(shown_, part);
  pass(LineMerger::kMaxStandstillOfLong - LineMerger::kMaxStandstill);
  EXPECT_THAT(shown_, HasSubstr("b\n"));
}

TEST_F(LineMergerTest, StreamsOfOneRankAreDifferentWriters) {
  merger_.add({0, 1}, "out");
  merger_.add({0, 2}, "error\n");
  merger_.add({0, 1}, "put\n");
  EXPECT_EQ(shown_, "output\nerror\n");
}

TEST_F(LineMergerTest, ARankDoesNotWaitForItself) {
  merger_.add({1, 1}, "b");
  merger_.add({0, 2}, "error 1\n");
  EXPECT_EQ(taken_[0], 0U) << "rank 0 waits for rank 1";
  merger_.add({0, 1}, "out");
  merger_.add({1, 1}, "\n");
  merger_.add({0, 1}, "");
  EXPECT_EQ(shown_, "b\nerror 1\nout");
  merger_.add({0, 2}, "error 2\n");
  merger_.add({1, 1}, "c\n");
  EXPECT_EQ(taken_[0], 8U + 3U + 8U) << "it could never finish its line otherwise";
  EXPECT_EQ(taken_[1], 2U);
  merger_.add({0, 1}, "put\n");
  EXPECT_EQ(shown_, "b\nerror 1\noutput\nerror 2\nc\n");
  EXPECT_EQ(taken_[0], 8U + 7U + 8U) << "nothing is taken twice";
}

TEST_F(LineMergerTest, ARankWithALineOpenElsewhereDoesNotWait) {
  add(1, "open");
  add(0, "x\n");
  EXPECT_EQ(taken_[0], 0U);
  EXPECT_EQ(merger_.open_rank(), 1);
  EXPECT_TRUE(merger_.take_of(0));
  EXPECT_EQ(taken_[0], 2U);
  add(0, std::string(LineMerger::kMaxOwnBytes, 'y') + "\n");
  EXPECT_FALSE(merger_.take_of(0)) << "too much to keep";
  merger_.give_up();
  EXPECT_THAT(shown_, ::testing::StartsWith("open|x\ny"));
  EXPECT_EQ(taken_[0], 2U + LineMerger::kMaxOwnBytes + 1) << "nothing is taken twice";
}

TEST_F(LineMergerTest, ARankThatOnlyWritesElsewhereLosesItsLine) {
  merger_.add({0, 1}, "out");
  const std::string line = std::string(1023, 'x').append("\n");
  for (std::size_t i = 0; i <= LineMerger::kMaxOwnBytes / line.size(); ++i) {
    merger_.add({0, 2}, line);
  }
  EXPECT_EQ(shown_.substr(0, 5), "out|x");
  EXPECT_GE(shown_.size(), LineMerger::kMaxOwnBytes);
}

TEST_F(LineMergerTest, ALineThatStandsStillIsBrokenAfterTwoSeconds) {
  add(0, "stuck");
  add(1, "b\n");
  pass(std::chrono::milliseconds(1999));
  EXPECT_EQ(shown_, "stuck");
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(shown_, "stuck|b\n");
}

TEST_F(LineMergerTest, ALineThatGrowsIsNotBroken) {
  add(0, "slow");
  add(1, "b\n");
  for (int i = 0; i < 5; ++i) {
    pass(std::chrono::milliseconds(1500));
    add(0, ".");
  }
  add(0, "\n");
  EXPECT_EQ(shown_, "slow.....\nb\n");
}

TEST_F(LineMergerTest, TheEndOfARankEndsItsLine) {
  add(0, "no end");
  add(1, "b\n");
  merger_.end(0);
  EXPECT_EQ(shown_, "no end|b\n");
}

TEST_F(LineMergerTest, TheEndOfARankComesAfterWhatItWrote) {
  add(0, "line");
  add(1, "one");
  merger_.end(1);
  add(2, "c\n");
  add(0, "\n");
  EXPECT_EQ(shown_, "line\none|c\n");
}

TEST_F(LineMergerTest, ACarriageReturnInALongLineIsAByteLikeOthers) {
  add(0, "a\r");
  add(1, "b\n");
  add(0, "c\n");
  EXPECT_EQ(shown_, "a\rc\nb\n");
}

TEST_F(LineMergerTest, ProgressMayBeFollowedByAnybody) {
  merger_ = make(true);
  add(0, "10%\r");
  add(1, "b\n");
  add(0, "20%\r");
  add(0, "30%\r");
  EXPECT_EQ(shown_, "10%\r|b\n20%\r30%\r");
}

TEST_F(LineMergerTest, NobodyWaitsForALineWithoutEnd) {
  const std::string piece(std::size_t{1} << 20, 'x');
  add(1, "x");
  add(0, "b\n");
  for (std::size_t i = 0; i < LineMerger::kMaxLineBytes / piece.size(); ++i) add(1, piece);
  EXPECT_EQ(shown_.size(), LineMerger::kMaxLineBytes + 1 + 3) << "a break and rank 0's line";
}

TEST_F(LineMergerTest, FinishShowsEverything) {
  add(0, "a");
  add(1, "b");
  add(2, "c\n");
  merger_.finish();
  EXPECT_EQ(shown_, "a|b|c\n");
}

TEST(LastLines, KeepsTwenty) {
  LastLines lines;
  EXPECT_TRUE(lines.is_empty());
  for (int i = 1; i <= 30; ++i) lines.append("line " + std::to_string(i) + "\n");
  EXPECT_THAT(lines.quoted(), ::testing::StartsWith("\n  | line 11\n  | line 12\n"));
  EXPECT_THAT(lines.quoted(), ::testing::EndsWith("\n  | line 30"));
  lines.append("open");
  lines.append(" end");
  EXPECT_THAT(lines.quoted(), ::testing::EndsWith("\n  | line 30\n  | open end"));
}

TEST(LastLines, OfOneLongTextToo) {
  std::string text = "begin";
  for (int i = 1; i <= 1000; ++i) text += "\nline " + std::to_string(i);
  LastLines lines;
  lines.append("before ");
  lines.append(text + "\n");
  EXPECT_THAT(lines.quoted(), ::testing::StartsWith("\n  | line 981\n"));
  EXPECT_THAT(lines.quoted(), ::testing::EndsWith("\n  | line 1000"));
}

TEST(LastLines, LongLinesAreCutBetweenCharacters) {
  for (std::size_t offset = 0; offset < 4; ++offset) {
    LastLines lines;
    lines.append(std::string(LastLines::kMaxLineBytes - 4 + offset, 'x'));
    lines.append("\xf0\x9f\x98\x80\xf0\x9f\x98\x80\n");
    const std::string text = lines.quoted();
    EXPECT_THAT(text, ::testing::EndsWith(offset == 0 ? "\x98\x80 ..." : "x ...")) << offset;
  }
}

TEST(LastLines, ShowsNothingThatChangesTheTerminal) {
  LastLines lines;
  lines.append("10%\r20%\r100%\r\n\x1b[2Jclear\a\tkept\n");
  EXPECT_EQ(lines.quoted(), "\n  | 100%\n  | [2Jclear\tkept");
}

struct Captured {
  std::string out;
  std::string err;
};

template <typename Write>
Captured captured(OutputOptions options, Write write) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    OutputSink sink(std::move(options));
    write(sink);
    EXPECT_TRUE(sink.finish());
  }
  return {::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

OutputOptions two_ranks() {
  OutputOptions options;
  options.host_of_rank = {"h", "h"};
  return options;
}

TEST(OutputSink, LinesOfOneStreamAreNotTornByTheOther) {
  OutputOptions options = two_ranks();
  options.tag = true;
  const Captured text = captured(options, [](OutputSink& sink) {
    sink.write(0, 1, "a");
    sink.write(1, 2, "error\n");
    sink.write(1, 1, "other\n");
    sink.write(0, 1, "b\n");
    sink.write(1, 2, "error");
  });
  EXPECT_EQ(text.out, "[h/0] ab\n[h/1] other\n");
  EXPECT_EQ(text.err, "[h/1] error\n[h/1] error");
}

TEST(OutputSink, TimestampsComeBeforeTags) {
  OutputOptions options = two_ranks();
  options.tag = true;
  options.timestamp = true;
  const Captured text =
      captured(options, [](OutputSink& sink) { sink.write(1, 1, "one\r\ntwo\n"); });
  constexpr const char* kTime =
      "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] "
      "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9]";
  EXPECT_THAT(text.out,
              MatchesRegex(std::string(kTime) + " \\[h/1\\] one\r\n" + kTime + " \\[h/1\\] two\n"));
}

TEST(OutputSink, RanksThatAreAddedHaveFilesAndTags) {
  std::string folder = std::filesystem::temp_directory_path() / "output_sink.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::create_directories(folder + "/rank.0");
  std::ofstream(folder + "/rank.0/stdout") << "of an earlier job";
  OutputOptions options;
  options.tag = true;
  options.directory = folder;
  ::testing::internal::CaptureStdout();
  {
    OutputSink sink(std::move(options));
    sink.add_rank("n0");
    sink.write(0, 1, "a\n");
    sink.add_rank("n1");
    sink.write(1, 1, "b\n");
    EXPECT_TRUE(sink.finish());
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "[n0/0] a\n[n1/1] b\n");
  for (const char* text : {"0a\n", "1b\n"}) {
    std::ifstream file(folder + "/rank." + text[0] + "/stdout");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text + 1);
  }
  std::filesystem::remove_all(folder);
}

TEST(OutputSink, TellsWhatHasBeenWrittenOnceForEachStream) {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  OutputOptions options = two_ranks();
  options.tag = true;
  options.on_written = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    ++calls;
    changed.notify_all();
  };
  std::vector<WrittenOutput> written;
  (void)captured(options, [&](OutputSink& sink) {
    sink.write(1, 2, "12345\n");
    {
      std::unique_lock<std::mutex> lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return calls == 1; }));
    }
    sink.write(1, 2, "1\n");
    sink.write(0, 1, "12\n");
    EXPECT_TRUE(sink.finish());
    written = sink.take_written();
  });
  EXPECT_EQ(calls, 1) << "take_written() was not called in between";
  ASSERT_EQ(written.size(), 2U);
  EXPECT_EQ(written[0].rank, 0U);
  EXPECT_EQ(written[0].bytes, 3U);
  EXPECT_EQ(written[1].stream, 2U);
  EXPECT_EQ(written[1].bytes, 8U) << "the rank's own bytes, no tags";
}

}  // namespace
}  // namespace chainmail::launch
