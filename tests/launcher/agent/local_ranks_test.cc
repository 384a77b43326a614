// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is told of each rank, whom signals reach, and what is left of a world.

#include "launcher/agent/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/agent/watched_ranks.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::StartsWith;

using LocalRanksTest = WatchedRanks;

std::ptrdiff_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

std::vector<std::uint32_t> first_ranks(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::string killed(int number) { return end_text(true, number); }

TEST_F(LocalRanksTest, EachRankHasItsPlaceAndEndsWithItsCode) {
  start({4, 6, 9}, "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK; exit $RANK");
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("started", "exited with code 4"));
  EXPECT_THAT(news_[6], ElementsAre("started", "exited with code 6"));
  EXPECT_THAT(news_[9], ElementsAre("started", "exited with code 9"));
  EXPECT_EQ(output_[4], "4/10 0/3 2\n");
  EXPECT_EQ(output_[6], "6/10 1/3 2\n");
  EXPECT_EQ(output_[9], "9/10 2/3 2\n");
  ranks_.reap();  // on_message() refuses whatever that tells again
}

TEST_F(LocalRanksTest, PatternsAreExpandedForEachRank) {
  StartOrder order = order_of({4, 6}, "");
  OrderedProgram& program = order.programs.front();
  program.expands = true;
  program.patterns = {{"X", "$RANK of ${WORLD_SIZE} on $NODE_RANK"}};
  program.words.back() = "echo \"$$X\" $$CHAINMAIL_JOB_TEMP $$PWD; exit $LOCAL_RANK";
  program.working_directory = "$CHAINMAIL_JOB_TEMP";
  ranks_.start(std::move(order), {Core{{0}}}, nullptr, "/tmp");
  wait_for_end();
  EXPECT_EQ(output_[4], "4 of 10 on 2 /tmp /tmp\n");
  EXPECT_THAT(news_[6], ElementsAre("started", "exited with code 1"));
}

TEST_F(LocalRanksTest, WhatAPatternLeadsToIsWhatFails) {
  StartOrder order = order_of({4}, "");
  order.programs = {{"$NONE/x$RANK", {"true"}, {}, true, {}}};
  start(std::move(order));
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("chdir /x4: " + std::to_string(ENOENT)));
}

TEST_F(LocalRanksTest, NothingIsStartedWhereANameIsNothing) {
  StartOrder order = order_of({4, 6}, "");
  order.programs = {{"/", {"$NONE"}, {}, true, {}}};
  start(std::move(order));
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre(StartsWith("host the program's name '$NONE' is nothing")));
  EXPECT_TRUE(news_[6].empty());
}

TEST_F(LocalRanksTest, AnOrderThatIsRefusedHasItsReasonAndItsEnd) {
  ranks_.refuse(order_of({4, 6}, "exit 0"), "no folder");
  EXPECT_EQ(ends_, 1);
  EXPECT_THAT(news_[4], ElementsAre("host no folder: 0"));
  EXPECT_FALSE(ranks_.is_running());
}

TEST_F(LocalRanksTest, ManyRanksStartAFewAtATime) {
  start(first_ranks(50), "exit $LOCAL_RANK");
  {
    const SignalsBlocked blocked;
    for (const pid_t pid : children_of_this_process()) {
      siginfo_t info{};
      EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    }
  }
  ranks_.reap();
  EXPECT_TRUE(ranks_.is_running()) << "the first few are not all";
  wait_for_end();
  for (const std::uint32_t rank : first_ranks(50)) {
    EXPECT_THAT(news_[rank], ElementsAre("started", end_text(false, static_cast<int>(rank))));
  }
}

TEST_F(LocalRanksTest, TheSignalThatEndedARankIsTold) {
  start({4, 6}, "case $RANK in 4) kill -USR1 $$ ;; 6) kill -KILL $$ ;; esac; exit 1");
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("started", killed(SIGUSR1)));
  EXPECT_EQ(exits_[4].detail, "");
  EXPECT_THAT(news_[6], ElementsAre("started", killed(SIGKILL)));
  EXPECT_NE(exits_[6].detail, "") << "who sends SIGKILL is a question";
}

TEST_F(LocalRanksTest, AStartThatFailsIsToldWithItsStageAndPathAndEndsNoOther) {
  std::string folder = (fs::temp_directory_path() / "chainmail-ranks.XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/plain") << "text";  // nobody may run it
  StartOrder order = order_of({4, 5, 6, 7, 8, 9}, "exit 0");
  order.programs.push_back({"/", {"no-such-program"}, {}});
  order.programs.push_back({"/", {folder + "/plain"}, {}});
  order.programs.push_back({"/", {"plain"}, {{"PATH", folder}}});
  order.programs.push_back({folder + "/none", {"true"}, {}});
  for (std::uint32_t i = 1; i < 5; ++i) order.ranks[i].program = i;
  start(std::move(order));
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("started", "exited with code 0"));
  EXPECT_THAT(news_[5], ElementsAre("exec no-such-program: " + std::to_string(ENOENT)));
  EXPECT_THAT(news_[6], ElementsAre("exec " + folder + "/plain: " + std::to_string(EACCES)));
  EXPECT_THAT(news_[7], ElementsAre("exec plain: " + std::to_string(EACCES)));
  EXPECT_THAT(news_[8], ElementsAre("chdir " + folder + "/none: " + std::to_string(ENOENT)));
  EXPECT_THAT(news_[9], ElementsAre("started", "exited with code 0"));
  fs::remove_all(folder);
}

#ifndef __SANITIZE_ADDRESS__  // the other sanitizer beside it opens files to look at objects
TEST_F(LocalRanksTest, WhereTheFirstCannotBeMadeNoneIs) {
  const rlimit all = file_limit();
  const int free_number = dup(STDIN_FILENO);
  close(free_number);
  const rlimit few{static_cast<rlim_t>(free_number) + 1, all.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  start({4, 6}, "exit 0");
  setrlimit(RLIMIT_NOFILE, &all);
  EXPECT_EQ(ends_, 1);
  EXPECT_THAT(news_[4], ElementsAre("spawn sh: " + std::to_string(EMFILE)));
  EXPECT_EQ(news_.size(), 1U);
}
#endif

TEST_F(LocalRanksTest, ABindingThatTheCoresDoNotAllowStartsNone) {
  StartOrder order = order_of({4, 6}, "exit 0");
  order.binding = {BindTo::kCore, 2};
  start(std::move(order));
  EXPECT_EQ(ends_, 1);
  EXPECT_THAT(news_[4], ElementsAre(StartsWith("host ")));
  EXPECT_EQ(news_.size(), 1U);
}

TEST_F(LocalRanksTest, SigtermWhileRanksStartEndsTheStarting) {
  start(first_ranks(100), "exec sleep 1000");
  ranks_.signal_all(SIGTERM);
  wait_for_end();
  EXPECT_GT(news_.size(), 0U);
  EXPECT_LT(news_.size(), 100U);
  for (const auto& [rank, news] : news_) {
    EXPECT_LT(rank, news_.size()) << "not one of the first";
    EXPECT_THAT(news, AnyOf(ElementsAre(killed(SIGTERM)), ElementsAre("started", killed(SIGTERM))));
  }
  EXPECT_NE(ranks_.streams_of(0), nullptr);
  EXPECT_EQ(ranks_.streams_of(99), nullptr);
}

TEST_F(LocalRanksTest, SignalsBeforeAndAfterReachNobody) {
  ranks_.signal_all(SIGTERM);
  start({4}, "exit 0");
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("started", "exited with code 0"));
  ranks_.signal_all(SIGKILL);
  ranks_.reap();
  EXPECT_EQ(news_[4].size(), 2U);
}

TEST_F(LocalRanksTest, ASignalToAllReachesWhatRanksHaveStarted) {
  start({4}, "sleep 1000 & echo $!; wait");
  ASSERT_TRUE(run_until([&] { return !output_[4].empty(); }));
  ranks_.signal_all(SIGTERM);
  wait_for_end();
  EXPECT_EQ(news_[4].back(), killed(SIGTERM));
  const pid_t below = std::stoi(output_[4]);
  ASSERT_TRUE(run_until([&] { return orphans_.contains(below); }));
  EXPECT_EQ(WTERMSIG(orphans_[below]), SIGTERM);
}

TEST_F(LocalRanksTest, ASignalThatIsPassedIsForTheMainProcessAlone) {
  start({4}, "trap 'exit 7' USR2; sleep 1000 & echo $!; wait; exit 1");
  ASSERT_TRUE(run_until([&] { return !output_[4].empty(); }));
  ranks_.pass_signal(SIGUSR2);
  wait_for_end();
  EXPECT_THAT(news_[4], ElementsAre("started", "exited with code 7"));
  const pid_t below = std::stoi(output_[4]);
  ASSERT_TRUE(run_until([&] { return orphans_.contains(below); }));
  EXPECT_EQ(WTERMSIG(orphans_[below]), SIGKILL) << "it ends with its rank";
}

TEST_F(LocalRanksTest, ASignalThatIsPassedEarlyComesWhenTheProgramRuns) {
  EXPECT_FALSE(ranks_.has_passed(SIGUSR1));
  start({4, 6}, "exec sleep 1000");
  ranks_.pass_signal(SIGUSR1);
  EXPECT_TRUE(ranks_.has_passed(SIGUSR1));
  EXPECT_FALSE(ranks_.has_passed(SIGUSR2));
  wait_for_end();
  for (const std::uint32_t rank : {4U, 6U}) {
    EXPECT_THAT(news_[rank], ElementsAre("started", killed(SIGUSR1)));
    EXPECT_THAT(exits_[rank].detail, StartsWith("the job was sent this signal"));
  }
}

TEST_F(LocalRanksTest, StopsAreToldAndSigtermReachesWhoIsStopped) {
  start({4, 6}, "exec sleep 1000");
  wait_for(4, "started");
  wait_for(6, "started");
  kill(pids_[6], SIGSTOP);
  wait_for(6, "stopped");
  kill(pids_[6], SIGCONT);
  wait_for(6, "continued");
  kill(pids_[6], SIGSTOP);
  wait_for(6, "stopped");
  EXPECT_THAT(news_[6], ElementsAre("started", "stopped", "continued", "stopped"));
  ranks_.signal_all(SIGTERM);
  wait_for_end();
  EXPECT_EQ(news_[6].back(), killed(SIGTERM));
  EXPECT_THAT(news_[4], ElementsAre("started", killed(SIGTERM)));
}

TEST_F(LocalRanksTest, RunsFromTheOrderToTheEndOfTheLastRank) {
  EXPECT_FALSE(ranks_.is_running());
  start({4, 6}, "[ $RANK = 4 ] || exec sleep 1000");
  EXPECT_TRUE(ranks_.is_running());
  wait_for(4, "exited with code 0");
  wait_for(6, "started");
  EXPECT_TRUE(ranks_.is_running());
  EXPECT_FALSE(ranks_.owns(pids_[4]));
  EXPECT_TRUE(ranks_.owns(pids_[6]));
  ranks_.signal_all(SIGKILL);
  wait_for_end();
  EXPECT_FALSE(ranks_.is_running());
  EXPECT_FALSE(ranks_.owns(pids_[6]));
  EXPECT_EQ(exits_[6].detail, "") << "it was the launcher's own SIGKILL";
}

TEST_F(LocalRanksTest, EachRankReadsItsOwnInput) {
  EXPECT_EQ(ranks_.streams_of(4), nullptr);
  StartOrder order = order_of({4, 6}, "read word; echo $RANK $word");
  for (OrderedRank& rank : order.ranks) rank.has_input = true;
  start(std::move(order));
  EXPECT_EQ(ranks_.streams_of(0), nullptr) << "a local rank";
  ASSERT_NE(ranks_.streams_of(4), nullptr);
  ASSERT_NE(ranks_.streams_of(6), nullptr);
  ranks_.streams_of(6)->write_input("six\n");
  ranks_.streams_of(4)->write_input("four\n");
  wait_for_end();
  EXPECT_EQ(output_[4], "4 four\n");
  EXPECT_EQ(output_[6], "6 six\n");
}

TEST_F(LocalRanksTest, NothingIsLeftOfAWorldAndAnotherOneBegins) {
  const auto before = open_files();
  start(first_ranks(40), "sleep 1000 & exit 0");
  wait_for_end();
  ranks_.clear();
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(ranks_.is_running());
  EXPECT_EQ(ranks_.streams_of(0), nullptr);
  news_.clear();
  ends_ = 0;
  StartOrder order = order_of({40, 41}, "echo $CHAINMAIL_GENERATION $LOCAL_RANK");
  order.generation = 1;
  start(std::move(order));
  EXPECT_TRUE(ranks_.is_running());
  wait_for_end();
  EXPECT_EQ(news_.size(), 2U);
  EXPECT_EQ(output_[40], "1 0\n");
  EXPECT_EQ(output_[41], "1 1\n");
}

}  // namespace
}  // namespace chainmail::launch
