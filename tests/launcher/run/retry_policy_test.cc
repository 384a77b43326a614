// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/retry_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

using Kind = AttemptEnd::Kind;
using ::testing::HasSubstr;

AttemptEnd lost(bool has_got_going) {
  return {Kind::kHostLost, 125, "host n2 was lost", has_got_going};
}

AttemptEnd failed(int code) { return {Kind::kProgramFailed, code, "rank 3 exited", true}; }

TEST(RetryPolicy, HostsThatAreLostAreReplacedAsOftenAsIsAllowed) {
  RetryPolicy policy({.losses = 2});
  EXPECT_THAT(policy.after(lost(true)).words, HasSubstr("loss 1 of 2"));
  EXPECT_TRUE(policy.after(lost(true)).is_retry);
  const auto last = policy.after(lost(true));
  EXPECT_FALSE(last.is_retry);
  EXPECT_THAT(last.words, HasSubstr("no retry is left (loss 3, and 2 are allowed)"));
  EXPECT_EQ(policy.losses(), 3u);
  EXPECT_EQ(policy.failures(), 0u);
}

TEST(RetryPolicy, WhoIsAskedToEndIsNotStartedAgain) {
  RetryPolicy policy({.failures = 5});
  AttemptEnd end = failed(7);
  end.was_interrupted = true;
  EXPECT_FALSE(policy.after(end).is_retry);
  EXPECT_EQ(policy.failures(), 1u);
}

TEST(RetryPolicy, AHostThatIsLostBeforeTheFirstStepIsAFailure) {
  RetryPolicy policy({.failures = 1, .losses = 20});
  const auto first = policy.after(lost(false));
  EXPECT_TRUE(first.is_retry);
  EXPECT_THAT(first.words, HasSubstr("failure 1 of 1, since it was lost before the first step"));
  EXPECT_FALSE(policy.after(lost(false)).is_retry);
  EXPECT_EQ(policy.losses(), 0u);
}

TEST(RetryPolicy, AProgramThatFailsIsNotTriedAgainUnlessAsked) {
  RetryPolicy never({});
  EXPECT_FALSE(never.after(failed(7)).is_retry);
  EXPECT_EQ(never.failures(), 1u);
  RetryPolicy twice({.failures = 2});
  EXPECT_TRUE(twice.after(failed(7)).is_retry);
  EXPECT_TRUE(twice.after(failed(7)).is_retry);
  EXPECT_FALSE(twice.after(failed(7)).is_retry);
}

TEST(RetryPolicy, ExitCodesMayCountAsLosses) {
  RetryPolicy policy({.losses = 1, .exit_codes = {75}});
  EXPECT_TRUE(policy.after(failed(75)).is_retry);
  EXPECT_FALSE(policy.after(failed(7)).is_retry);
  EXPECT_FALSE(policy.after(failed(75)).is_retry);
  EXPECT_EQ(policy.losses(), 2u);
  EXPECT_EQ(policy.failures(), 1u);
}

TEST(RetryPolicy, WhatTheUserOrTheClockEndsStaysEnded) {
  RetryPolicy policy({.failures = 9});
  for (const Kind kind : {Kind::kSucceeded, Kind::kStopped, Kind::kTimeLimit, Kind::kNotStarted,
                          Kind::kLauncherError}) {
    EXPECT_FALSE(policy.after({kind, 1, "", true}).is_retry);
  }
  EXPECT_EQ(policy.failures(), 0u);
  EXPECT_EQ(policy.losses(), 0u);
}

}  // namespace
}  // namespace chainmail::launch
