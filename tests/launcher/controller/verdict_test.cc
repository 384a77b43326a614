// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which of several failures is the cause of the end of a job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "launcher/controller/state/verdict.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace chainmail::launch
