// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/error_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/ranks.h"

namespace chainmail::ops {
namespace {

using testing::ElementsAre;

template <typename E>
std::exception_ptr sent(E error) {
  return decode_error(encode_error(std::make_exception_ptr(std::move(error))));
}

TEST(ErrorText, TypesSurvive) {
  EXPECT_TRUE(test::is<MismatchError>(sent(MismatchError("a\nb\n"))));
  EXPECT_EQ(test::text_of(sent(MismatchError("a\nb\n"))), "a\nb\n");
  try {
    std::rethrow_exception(sent(TimeoutError("late", {3, 17})));
  } catch (const TimeoutError& e) {
    EXPECT_THAT(e.missing_ranks(), ElementsAre(3, 17));
  }
  try {
    std::rethrow_exception(sent(PeerError("gone", 4)));
  } catch (const PeerError& e) {
    EXPECT_EQ(e.peer_rank(), 4);
    EXPECT_STREQ(e.what(), "gone");
  }
}

TEST(ErrorText, ANativeFailureElsewhereIsAPeerThatFailed) {
  EXPECT_TRUE(test::is<PeerError>(sent(SystemError("no memory", 12))));
  EXPECT_TRUE(test::is<PeerError>(sent(std::runtime_error("odd"))));
}

TEST(ErrorText, ANativeFailureOfThisNodeStaysOne) {
  const std::string text = encode_error(std::make_exception_ptr(SystemError("no memory", 12)));
  try {
    std::rethrow_exception(decode_error(text, FailedWhere::kThisNode));
  } catch (const SystemError& e) {
    EXPECT_EQ(e.native_code(), 12);
    EXPECT_STREQ(e.what(), "no memory");
  }
}

TEST(ErrorText, WhatIsCutOffReadsAsSomeError) {
  const std::string text = encode_error(std::make_exception_ptr(TimeoutError("late", {1, 3})));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(decode_error(std::string_view(text).substr(0, length)), nullptr);
  }
}

TEST(ErrorText, LongTextsAndManyRanksAreCutToFit) {
  const PeerError wordy(std::string(100'000, 'x'), 1);
  EXPECT_LE(encode_error(std::make_exception_ptr(wordy)).size(), kMaxErrorBytes);
  const std::string text = encode_error(
      std::make_exception_ptr(TimeoutError("late", std::vector<int>(100'000, 99'999))));
  EXPECT_LE(text.size(), kMaxErrorBytes);
  EXPECT_EQ(test::text_of(decode_error(text)), "late");
}

TEST(ErrorText, NewsFromOutsideGetTheOperation) {
  const auto news = std::make_exception_ptr(PeerError("rank 2 on host n2 is lost: killed", 2));
  const auto named = in_operation("all_reduce #5 on rank 0 (n1)", news);
  EXPECT_EQ(test::text_of(named),
            "all_reduce #5 on rank 0 (n1): rank 2 on host n2 is lost: killed");
  try {
    std::rethrow_exception(named);
  } catch (const PeerError& e) {
    EXPECT_EQ(e.peer_rank(), 2);
  }
  EXPECT_EQ(in_operation("barrier", named), named) << "it has one already";
  const auto other = std::make_exception_ptr(MismatchError("rank 1 calls barrier"));
  EXPECT_EQ(in_operation("barrier", other), other);
}

TEST(ErrorText, RubbishIsQuoted) {
  for (const char* text : {"", "x", "PeerError", "PeerError\n1", "PeerError\n1\nno comma",
                           "PeerError\n99999999999999,\nbig", "PeerError\n-,\nsign"}) {
    EXPECT_TRUE(test::is<PeerError>(decode_error(text))) << text;
    EXPECT_EQ(test::text_of(decode_error(text)),
              "another rank reported a failure: " + std::string(text));
  }
}

}  // namespace
}  // namespace chainmail::ops
