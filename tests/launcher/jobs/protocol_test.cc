// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that talk to the launcher: store, news and what a broken rank does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/launcher/jobs/run_launcher.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

std::multiset<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

Result probe(const std::string& hosts, const std::string& mode) {
  return run_launcher({"-H", hosts, CHAINMAIL_TEST_PROBE, mode});
}

TEST(Store, ServesAllRanksWithLargeValues) {
  for (const char* hosts : {"localhost:1", "localhost:4", "localhost:2,127.0.0.1:2"}) {
    const Result result = probe(hosts, "store");
    EXPECT_EQ(result.code, 0) << hosts << ": " << result.err;
    const auto lines = lines_of(result.out);
    EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 1U)
        << "one secret and one job id for all: " << result.out;
  }
}

TEST(Store, SecretsDifferFromJobToJob) {
  EXPECT_NE(probe("localhost:1", "store").out, probe("localhost:1", "store").out);
}

TEST(News, LossOfARankReachesAllOthersBeforeTheyAreEnded) {
  const Result result = probe("localhost:3,127.0.0.1:2", "news");
  EXPECT_EQ(result.code, 3) << result.err;
  const std::string line = "lost 1 on localhost: exited with code 3";
  EXPECT_EQ(lines_of(result.out), (std::multiset<std::string>{line, line, line, line}));
  EXPECT_THAT(result.err, HasSubstr("rank 1 on host localhost exited with code 3"));
}

TEST(News, FailedGroupsAreAnnouncedToAllOthers) {
  const Result result = probe("localhost:3", "group");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string line = "0 world rank 2 is gone 2";
  EXPECT_EQ(lines_of(result.out), (std::multiset<std::string>{line, line}));
}

TEST(Nonsense, EndsTheJobWithAnExplanation) {
  const Result result = probe("localhost:2", "nonsense");
  EXPECT_EQ(result.code, 125);
  EXPECT_THAT(result.err, HasSubstr("sent what cannot be understood"));
}

TEST(Output, WhatCStdioHoldsIsNotLostBySuddenEnd) {
  const Result result = probe("localhost:1", "printf");
  EXPECT_EQ(result.code, 9);
  EXPECT_EQ(result.out, "one\ntwo\nthree\n");
}

}  // namespace
}  // namespace chainmail::launch
