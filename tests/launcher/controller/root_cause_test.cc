// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which of several failures is the cause of the end of a job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "launcher/controller/state/root_cause.h"

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

TEST(RootCause, FirstFailureDecides) {
  RootCause root_cause(4);
  root_cause.add(exit_of(2, false, 3));
  root_cause.add(exit_of(1, false, 4));
  EXPECT_EQ(root_cause.failure()->exit_code, 3);
  EXPECT_EQ(root_cause.failure()->cause, "exited with code 3");
}

TEST(RootCause, DeathBySignalOutweighsTheNoticeOfIt) {
  RootCause root_cause(4);
  root_cause.add(exit_of(0, false, 1));
  root_cause.add(exit_of(3, true, SIGKILL));
  EXPECT_EQ(root_cause.failure()->exit_code, 137);
  EXPECT_EQ(*root_cause.failure()->rank, 3U);
  EXPECT_THAT(root_cause.failure()->cause, HasSubstr("killed by signal 9"));
}

TEST(RootCause, CodesThatStandForNoSignalWeighNoMoreThanOthers) {
  for (const std::uint32_t code : {128U, 200U, 255U}) {
    RootCause root_cause(2);
    root_cause.add(exit_of(0, false, code));
    root_cause.add(exit_of(1, true, SIGSEGV));
    EXPECT_EQ(root_cause.failure()->exit_code, 139) << code;
  }
  RootCause root_cause(2);  // what a shell says of its program's signal does
  root_cause.add(exit_of(0, false, 1));
  root_cause.add(exit_of(1, false, 139));
  EXPECT_EQ(root_cause.failure()->exit_code, 139);
}

TEST(RootCause, UncaughtErrorsOfSurvivorsDoNot) {
  RootCause root_cause(4);
  root_cause.add(exit_of(3, false, 3));
  root_cause.add(exit_of(0, true, SIGABRT));
  EXPECT_EQ(root_cause.failure()->exit_code, 3);
}

const RootCause::Time kNow{};

TEST(RootCause, VictimsGiveWay) {
  RootCause root_cause(4);
  root_cause.add({3, "rank 3 ended the group"}, kNow);
  root_cause.add(exit_of(0, true, SIGABRT));
  root_cause.add(exit_of(3, false, 3));
  EXPECT_EQ(root_cause.failure()->exit_code, 3);
}

TEST(RootCause, VictimsThatEndBeforeTheBlameIsHeardGiveWay) {
  RootCause root_cause(4);
  root_cause.add(exit_of(0, false, 1));
  root_cause.add({3, "rank 3 ended the group"}, kNow);
  root_cause.add(exit_of(3, false, 1));
  EXPECT_EQ(*root_cause.failure()->rank, 3U);
}

TEST(RootCause, AVictimThatIsBlamedByAnotherStaysOne) {
  RootCause root_cause(4);
  root_cause.add({3, "rank 3 ended the group"}, kNow);
  root_cause.add({0, "the connection to rank 0 was closed"}, kNow);
  root_cause.add(exit_of(0, false, 1));
  EXPECT_TRUE(root_cause.is_doubtful());
  EXPECT_EQ(root_cause.blame()->rank, 3U);
  root_cause.add(exit_of(3, true, SIGSEGV));
  EXPECT_EQ(root_cause.failure()->exit_code, 139);
}

TEST(RootCause, AFailureLongAfterIsAnother) {
  RootCause root_cause(4);
  root_cause.add({3, "rank 3 ended the group"}, kNow);
  root_cause.add({0, "the connection to rank 0 was closed"}, kNow + std::chrono::minutes(1));
  root_cause.add(exit_of(1, false, 1));
  EXPECT_TRUE(root_cause.is_doubtful());
  root_cause.add(exit_of(0, false, 5));
  EXPECT_EQ(root_cause.failure()->exit_code, 5);
}

TEST(RootCause, VictimsAloneLeaveADoubt) {
  RootCause root_cause(4);
  root_cause.add({2, "rank 2 left"}, kNow);
  EXPECT_FALSE(root_cause.is_doubtful());
  root_cause.add(exit_of(0, false, 1));
  EXPECT_TRUE(root_cause.is_doubtful());
  root_cause.add({std::nullopt, 125, "lost host n2"});
  EXPECT_FALSE(root_cause.is_doubtful());
  EXPECT_EQ(root_cause.failure()->exit_code, 125);
}

TEST(RootCause, AKillForMemoryIsSaid) {
  RankExit exit;
  exit.by_signal = true;
  exit.value = SIGKILL;
  exit.out_of_memory = true;
  exit.detail = "it had used 3 MiB";
  const RankExit back = decode_exit(encode_fields(exit));
  EXPECT_EQ(describe(back), "was killed by signal 9 (out-of-memory killer): it had used 3 MiB");
  EXPECT_EQ(code_of(back), 137);
}

TEST(RootCause, NobodyEndsWithWhatNoProcessEndsWith) {
  RankExit exit;
  exit.value = 255;
  EXPECT_EQ(code_of(decode_exit(encode_fields(exit))), 255);
  exit.value = 256;
  EXPECT_THROW((void)decode_exit(encode_fields(exit)), Error);
  exit.by_signal = true;
  exit.value = 0x7fffffff;
  EXPECT_THROW((void)decode_exit(encode_fields(exit)), Error);
}

TEST(RootCause, ClosedIsClosed) {
  RootCause root_cause(2);
  root_cause.add(exit_of(0, false, 1));
  root_cause.close();
  root_cause.add(exit_of(1, true, SIGKILL));
  EXPECT_EQ(root_cause.failure()->exit_code, 1);
}

}  // namespace
}  // namespace chainmail::launch
