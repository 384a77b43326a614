// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Small parts of the launcher: line splitting, the verdict, remote command lines, what travels from
// the environment.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>

#include "base/error.h"
#include "launcher/agent/rank_process.h"
#include "launcher/controller/state/verdict.h"
#include "launcher/job/environment.h"
#include "launcher/output/line_splitter.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> split(const std::vector<std::string>& chunks, bool carriage_returns) {
  std::vector<std::string> pieces;
  LineSplitter splitter(carriage_returns,
                        [&](std::string_view piece) { pieces.emplace_back(piece); });
  for (const std::string& chunk : chunks) splitter.append(chunk);
  splitter.finish();
  return pieces;
}

TEST(LineSplitter, HandsOutWholeLines) {
  EXPECT_THAT(split({"a", "b\nc", "\nd\ne\nf"}, false), ElementsAre("ab\n", "c\nd\ne\n", "f"));
  EXPECT_THAT(split({"", "\n"}, false), ElementsAre("\n"));
}

TEST(LineSplitter, CarriageReturnsCountOnlyOnTerminals) {
  EXPECT_THAT(split({"10%\r20%\r3"}, false), ElementsAre("10%\r20%\r3"));
  EXPECT_THAT(split({"10%\r20%\r3"}, true), ElementsAre("10%\r20%\r", "3"));
}

TEST(LineSplitter, LongLinesAreCutBetweenCharacters) {
  // Two-, three- and four-byte characters at every offset towards the cut.
  for (const std::string character : {"\xc3\xb6", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      std::string line(LineSplitter::kMaxPieceBytes - 4 + offset, 'x');
      for (int i = 0; i < 4; ++i) line += character;
      const auto pieces = split({line}, false);
      ASSERT_EQ(pieces.size(), 2U);
      EXPECT_EQ(pieces[0] + pieces[1], line);
      EXPECT_NE(static_cast<unsigned char>(pieces[1][0]) & 0xc0U, 0x80U) << offset;
    }
  }
  const std::string no_text(LineSplitter::kMaxPieceBytes + 10, '\x80');
  const auto pieces = split({no_text}, false);
  EXPECT_EQ(pieces[0] + pieces[1], no_text);
}

TEST(StartReport, TheLastStageCountsHoweverTheBytesCome) {
  const std::string bytes = StartReport::encode(StartStage::kFolder, 0, "") +
                            StartReport::encode(StartStage::kSearch, 0, "/slow/p") +
                            StartReport::encode(StartStage::kExec, 0, std::string(5000, 'x'));
  const std::size_t last = bytes.size() - 1;
  for (std::size_t piece = 1; piece <= last; ++piece) {
    StartReport report;
    const auto all = std::as_bytes(std::span(bytes));
    for (std::size_t at = 0; at < last; at += piece) {
      report.append(all.subspan(at, std::min(piece, last - at)));
    }
    EXPECT_EQ(report.stage(), StartStage::kSearch);
    EXPECT_EQ(report.path(), "/slow/p");
    report.append(all.subspan(last));
    EXPECT_EQ(report.stage(), StartStage::kExec);
    EXPECT_EQ(report.path(), std::string(1024, 'x'));
    EXPECT_EQ(report.error(), 0);
    const std::string failure = StartReport::encode(StartStage::kExec, ENOENT, "");
    report.append(std::as_bytes(std::span(failure)));
    EXPECT_EQ(report.error(), ENOENT);
  }
}

Failure exit_of(std::uint32_t rank, bool by_signal, std::uint32_t value) {
  RankExit exit;
  exit.rank = rank;
  exit.by_signal = by_signal;
  exit.value = value;
  return {rank, code_of(exit), describe(exit)};
}

TEST(Verdict, FirstFailureDecides) {
  Verdict verdict(4);
  verdict.add(exit_of(2, false, 3));
  verdict.add(exit_of(1, false, 4));
  EXPECT_EQ(verdict.failure()->exit_code, 3);
  EXPECT_EQ(verdict.failure()->cause, "exited with code 3");
}

TEST(Verdict, DeathBySignalOutweighsTheNoticeOfIt) {
  Verdict verdict(4);
  verdict.add(exit_of(0, false, 1));
  verdict.add(exit_of(3, true, SIGKILL));
  EXPECT_EQ(verdict.failure()->exit_code, 137);
  EXPECT_EQ(*verdict.failure()->rank, 3U);
  EXPECT_THAT(verdict.failure()->cause, HasSubstr("killed by signal 9"));
}

TEST(Verdict, UncaughtErrorsOfSurvivorsDoNot) {
  Verdict verdict(4);
  verdict.add(exit_of(3, false, 3));
  verdict.add(exit_of(0, true, SIGABRT));
  EXPECT_EQ(verdict.failure()->exit_code, 3);
}

const Verdict::Time kNow{};

TEST(Verdict, VictimsGiveWay) {
  Verdict verdict(4);
  verdict.add({3, "rank 3 ended the group"}, kNow);
  verdict.add(exit_of(0, true, SIGABRT));
  verdict.add(exit_of(3, false, 3));
  EXPECT_EQ(verdict.failure()->exit_code, 3);
}

TEST(Verdict, VictimsThatEndBeforeTheBlameIsHeardGiveWay) {
  Verdict verdict(4);
  verdict.add(exit_of(0, false, 1));
  verdict.add({3, "rank 3 ended the group"}, kNow);
  verdict.add(exit_of(3, false, 1));
  EXPECT_EQ(*verdict.failure()->rank, 3U);
}

TEST(Verdict, AVictimThatIsBlamedByAnotherStaysOne) {
  Verdict verdict(4);
  verdict.add({3, "rank 3 ended the group"}, kNow);
  verdict.add({0, "the connection to rank 0 was closed"}, kNow);
  verdict.add(exit_of(0, false, 1));
  EXPECT_TRUE(verdict.is_doubtful());
  EXPECT_EQ(verdict.blame()->rank, 3U);
  verdict.add(exit_of(3, true, SIGSEGV));
  EXPECT_EQ(verdict.failure()->exit_code, 139);
}

TEST(Verdict, AFailureLongAfterIsAnother) {
  Verdict verdict(4);
  verdict.add({3, "rank 3 ended the group"}, kNow);
  verdict.add({0, "the connection to rank 0 was closed"}, kNow + std::chrono::minutes(1));
  verdict.add(exit_of(1, false, 1));
  EXPECT_TRUE(verdict.is_doubtful());
  verdict.add(exit_of(0, false, 5));
  EXPECT_EQ(verdict.failure()->exit_code, 5);
}

TEST(Verdict, VictimsAloneLeaveADoubt) {
  Verdict verdict(4);
  verdict.add({2, "rank 2 left"}, kNow);
  EXPECT_FALSE(verdict.is_doubtful());
  verdict.add(exit_of(0, false, 1));
  EXPECT_TRUE(verdict.is_doubtful());
  verdict.add({std::nullopt, 125, "lost host n2"});
  EXPECT_FALSE(verdict.is_doubtful());
  EXPECT_EQ(verdict.failure()->exit_code, 125);
}

TEST(Verdict, AKillForMemoryIsSaid) {
  RankExit exit;
  exit.by_signal = true;
  exit.value = SIGKILL;
  exit.out_of_memory = true;
  exit.detail = "it had used 3 MiB";
  const RankExit back = decode_exit(encode_exit(exit));
  EXPECT_EQ(describe(back), "was killed by signal 9 (out-of-memory killer): it had used 3 MiB");
  EXPECT_EQ(code_of(back), 137);
}

TEST(Verdict, NobodyEndsWithWhatNoProcessEndsWith) {
  RankExit exit;
  exit.value = 255;
  EXPECT_EQ(code_of(decode_exit(encode_exit(exit))), 255);
  exit.value = 256;
  EXPECT_THROW((void)decode_exit(encode_exit(exit)), Error);
  exit.by_signal = true;
  exit.value = 0x7fffffff;
  EXPECT_THROW((void)decode_exit(encode_exit(exit)), Error);
}

TEST(Verdict, ClosedIsClosed) {
  Verdict verdict(2);
  verdict.add(exit_of(0, false, 1));
  verdict.close();
  verdict.add(exit_of(1, true, SIGKILL));
  EXPECT_EQ(verdict.failure()->exit_code, 1);
}

TEST(ExportedEnvironment, PrefixesAndNamedVariables) {
  const Environment own = {{"CHAINMAIL_LOG", "info"},
                           {"OMP_NUM_THREADS", "3"},
                           {"HOME", "/h"},
                           {"LD_PRELOAD", "evil.so"},
                           {"CHAINMAIL_JOB_FD", "60"},
                           {"CHAINMAIL_NODE_ID", "n"},
                           {"NCCL_DEBUG", "INFO"},
                           {"MY", "1"}};
  std::vector<std::string> missing;
  const Environment out =
      exported_environment(own, {{"MY", {}}, {"SET", "2"}, {"ABSENT", {}}}, missing);
  EXPECT_EQ(out, (Environment{{"CHAINMAIL_LOG", "info"},
                              {"OMP_NUM_THREADS", "3"},
                              {"NCCL_DEBUG", "INFO"},
                              {"MY", "1"},
                              {"SET", "2"}}));
  EXPECT_THAT(missing, ElementsAre("ABSENT"));
}

}  // namespace
}  // namespace chainmail::launch
