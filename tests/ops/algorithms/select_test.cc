// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kSmall = 4;
constexpr std::size_t kLarge = std::size_t{25} << 20;

Algorithm pick(std::size_t bytes, std::vector<int> sizes) {
  return select_all_reduce(bytes, Topology::from_node_sizes(sizes)).algorithm;
}

TEST(Select, OneNodeNeedsNoWire) {
  EXPECT_EQ(pick(kSmall, {4}), Algorithm::kSingleNode);
  EXPECT_EQ(pick(kLarge, {1}), Algorithm::kSingleNode);
}

TEST(Select, NodesOfOneRankAreFlat) { EXPECT_EQ(pick(kLarge, {1, 1, 1}), Algorithm::kFlat); }

TEST(Select, SmallMessagesTakeTheFewestSteps) {
  EXPECT_EQ(pick(kSmall, {2, 2}), Algorithm::kHierarchical);
  EXPECT_EQ(pick(0, {4, 4}), Algorithm::kHierarchical);
}

TEST(Select, LargeMessagesUseAllCores) {
  EXPECT_EQ(pick(kLarge, {2, 2}), Algorithm::kTwoDimensional);
  EXPECT_EQ(pick(kLarge, {4, 2}), Algorithm::kTwoDimensional);
}

TEST(Select, ALoneRankBesideOthersLeavesOnlyTheLeader) {
  EXPECT_EQ(pick(kLarge, {3, 1}), Algorithm::kHierarchical);
}

TEST(Select, ATableComesFirstWhereThereIsAChoice) {
  const Tuning tuning = parse_tuning(
      "# of our cluster\n"
      "0 flat\n"
      "\n"
      "  1000\ttwo_dimensional  # shares the wire\r\n"
      "65536 hierarchical",
      "table");
  const auto choose = [&tuning](std::size_t bytes, const std::vector<int>& sizes) {
    return select_all_reduce(bytes, Topology::from_node_sizes(sizes), tuning).algorithm;
  };
  EXPECT_EQ(choose(0, {2, 2}), Algorithm::kFlat);
  EXPECT_EQ(choose(999, {2, 2}), Algorithm::kFlat);
  EXPECT_EQ(choose(1000, {3, 1}), Algorithm::kTwoDimensional);
  EXPECT_EQ(choose(65535, {2, 2}), Algorithm::kTwoDimensional);
  EXPECT_EQ(choose(kLarge, {2, 2}), Algorithm::kHierarchical);
  EXPECT_EQ(choose(kLarge, {4}), Algorithm::kSingleNode);
  EXPECT_EQ(choose(kLarge, {1, 1}), Algorithm::kFlat);
}

TEST(Select, ATableThatMakesNoSenseIsRefusedWithItsLine) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      static_cast<void>(parse_tuning(text, "the table"));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  };
  using testing::HasSubstr;
  EXPECT_THAT(error_of(""), HasSubstr("the table: no rows"));
  EXPECT_THAT(error_of("# nothing\n"), HasSubstr("no rows"));
  EXPECT_THAT(error_of("1 flat"), HasSubstr("line 1: rows must begin at 0"));
  EXPECT_THAT(error_of("0 flat\n5 hierarchical\n5 flat"), HasSubstr("line 3: rows must"));
  EXPECT_THAT(error_of("0 flat\n1k flat"), HasSubstr("line 2: \"1k\" is not a number"));
  EXPECT_THAT(error_of("-1 flat"), HasSubstr("line 1: \"-1\" is not a number"));
  EXPECT_THAT(error_of("99999999999999999999 flat"), HasSubstr("is not a number"));
  EXPECT_THAT(error_of("0 fastest"), HasSubstr("line 1: "));
  EXPECT_THAT(error_of("0"), HasSubstr("line 1: "));
  EXPECT_THAT(error_of("0 single_node"), HasSubstr("single_node is not a choice between nodes"));
  EXPECT_THAT(error_of("0 auto"), HasSubstr("auto is not a choice between nodes"));
  EXPECT_THAT(error_of("0 flat flat"), HasSubstr("\"flat\" after the algorithm"));
}

TEST(Select, AlwaysSaysWhy) {
  for (const std::vector<int>& sizes : {std::vector<int>{4}, {1, 1}, {2, 2}, {3, 1}}) {
    for (const std::size_t bytes : {kSmall, kLarge}) {
      EXPECT_STRNE(select_all_reduce(bytes, Topology::from_node_sizes(sizes)).reason, "");
    }
  }
}

}  // namespace
}  // namespace chainmail::ops
