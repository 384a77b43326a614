// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is told of a program that says nothing, and when.

#include "launcher/controller/elastic/silence.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

class SilenceTest : public ::testing::Test {
 protected:
  // As long as it can last.
  void wait_until_over() { io_.run(); }

  asio::io_context io_;
  std::vector<std::string> told_;
  std::vector<int> codes_;
  Silence silence_{io_, [this](const std::string& cause, const std::optional<Failure>& failure) {
                     told_.push_back(cause);
                     codes_.push_back(failure ? failure->exit_code : 0);
                   }};
};

TEST_F(SilenceTest, BeforeItBeginsNothingIsHeld) {
  EXPECT_FALSE(silence_.is_there());
  silence_.end();
  silence_.begin(milliseconds(1));
  wait_until_over();
  EXPECT_FALSE(silence_.is_there()) << "who has spoken is not silent later";
}

TEST_F(SilenceTest, WhatHappensInItIsToldWhenItHasLasted) {
  silence_.begin(milliseconds(1));
  silence_.change("the hosts have changed");
  silence_.fail({0, 3, "exited with code 3"});
  silence_.fail({1, 4, "exited with code 4"});
  EXPECT_TRUE(silence_.is_there() && told_.empty());
  wait_until_over();
  EXPECT_EQ(told_,
            std::vector<std::string>{"the hosts have changed, and no rank has said anything"});
  EXPECT_EQ(codes_, std::vector<int>{3}) << "the first failure counts";
  silence_.change("the hosts have changed");
  EXPECT_EQ(told_.size(), 1U) << "it is told once";
}

TEST_F(SilenceTest, AndAtOnceAfterwards) {
  silence_.begin(milliseconds(1));
  wait_until_over();
  EXPECT_TRUE(silence_.is_there() && told_.empty());
  silence_.fail({std::nullopt, 125, "lost host n2"});
  EXPECT_EQ(told_, std::vector<std::string>{"no rank has said anything"});
  EXPECT_EQ(codes_, std::vector<int>{125});
}

TEST_F(SilenceTest, AWordEndsIt) {
  silence_.begin(milliseconds(1));
  silence_.change("the hosts have changed");
  silence_.end();
  wait_until_over();
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace chainmail::launch
