// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which rank speaks of which error, and with what code it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <chainmail/error.h>

#include "examples/common/flags.h"

namespace {

using ::testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string words;
};

Ended end_of(const char* rank, const std::function<void()>& body,
             std::vector<std::string> words = {"program"}) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  setenv("RANK", rank, 1);
  ::testing::internal::CaptureStderr();
  Ended ended;
  ended.code = flags::run({.name = "program", .what = "is tested"},
                          static_cast<int>(arguments.size()), arguments.data(), [&](const auto&) {
                            body();
                            return 7;
                          });
  ended.words = ::testing::internal::GetCapturedStderr();
  unsetenv("RANK");
  return ended;
}

TEST(Frame, HandsOnWhatTheBodyReturns) {
  EXPECT_EQ(end_of("1", [] {}).code, 7);
}

TEST(Frame, RankZeroSpeaksForAllThatHaveAgreed) {
  const auto agreed = [] {
    throw chainmail::internal::Agreed(chainmail::InvalidArgument("rank 1 cannot read"));
  };
  const Ended first = end_of("0", agreed);
  EXPECT_EQ(first.code, 1);
  EXPECT_EQ(first.words, "program: rank 1 cannot read\n");
  const auto usage = [] { throw flags::UsageError("no such thing"); };
  EXPECT_EQ(end_of("0", usage).code, 2);
  for (const Ended& other : {end_of("1", agreed), end_of("1", usage),
                             end_of("1", [] {}, {"program", "--no-such-option"})}) {
    EXPECT_EQ(other.code, 0);
    EXPECT_EQ(other.words, "");
  }
}

// The others of an elastic job go on, and nobody knows which of them are there.
TEST(Frame, EveryMemberOfAnElasticJobSpeaks) {
  setenv("CHAINMAIL_ELASTIC", "1:4", 1);
  setenv("CHAINMAIL_JOB_FD", "3", 1);
  const Ended usage = end_of("5", [] {}, {"program", "--no-such-option"});
  const Ended agreed = end_of("5", [] {
    throw chainmail::internal::Agreed(chainmail::InvalidArgument("rank 1 cannot read"));
  });
  // A starter inside such a rank has ranks of its own.
  unsetenv("CHAINMAIL_JOB_FD");
  const Ended inside = end_of("5", [] {}, {"program", "--no-such-option"});
  unsetenv("CHAINMAIL_ELASTIC");
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(usage.words, "program: member 5: unknown flag '--no-such-option'; see --help\n");
  EXPECT_EQ(agreed.code, 1);
  EXPECT_EQ(agreed.words, "program: member 5: rank 1 cannot read\n");
  EXPECT_EQ(inside.code, 0);
  EXPECT_EQ(inside.words, "");
}

// Whatever its type, which says nothing about other ranks.
TEST(Frame, WhatOneRankHasItTells) {
  const std::vector<std::function<void()>> bodies = {
      [] { throw chainmail::InvalidArgument("1.ppm is cut off"); },
      [] { throw chainmail::MismatchError("1.ppm is cut off"); },
      [] { throw chainmail::PeerError("1.ppm is cut off"); },
      [] { throw std::runtime_error("1.ppm is cut off"); }};
  for (const auto& body : bodies) {
    const Ended ended = end_of("1", body);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.words, "program: rank 1: 1.ppm is cut off\n");
  }
  const Ended here = end_of("2", [] { throw flags::LocalUsageError("no GPU"); });
  EXPECT_EQ(here.code, 2);
  EXPECT_THAT(here.words, HasSubstr("rank 2: no GPU"));
}

// As LibTorch's are, and as ours that quote one.
TEST(Frame, LeavesFramesOfErrorsOut) {
  const auto words = [](const std::string& text) {
    return end_of("0", [&] { throw std::runtime_error(text); }).words;
  };
  const std::string frames =
      "\nException raised from f at f.h:1 (most recent call first):\nframe #0: f + 1 (x)\n"
      "frame #1: <unknown function>\n";
  EXPECT_EQ(words("it\nfails" + frames), "program: it\nfails\n");
  EXPECT_EQ(words("rank 0: it fails" + frames + " (and ranks 1)"),
            "program: rank 0: it fails (and ranks 1)\n");
  EXPECT_EQ(words("frames #1"), "program: frames #1\n");
  EXPECT_EQ(words(""), "program: \n");
}

TEST(Frame, RefusesNumbersByName) {
  const auto end = [](double number) {
    return end_of("0", [=] { flags::check_at_least(0.5, "lr", number); });
  };
  EXPECT_EQ(end(0.5).code, 7);
  EXPECT_EQ(end(0.1).words, "program: --lr 0.1: must be at least 0.5\n");
  EXPECT_EQ(end(0.1).code, 2);
  EXPECT_EQ(end(NAN).words, "program: --lr nan: must be at least 0.5\n");
  EXPECT_EQ(end(INFINITY).words, "program: --lr inf: must be at least 0.5, and finite\n");
  EXPECT_EQ(end_of("0", [] { flags::check_given("out", ""); }).words,
            "program: --out must not be empty\n");
}

}  // namespace
