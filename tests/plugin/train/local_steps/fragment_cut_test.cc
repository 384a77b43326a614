// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/fragment_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chainmail::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(FragmentCut, CutsWithinParameters) {
  const std::vector<FragmentItem> items = {{c10::kFloat, 10}, {c10::kFloat, 0}, {c10::kFloat, 2}};
  const auto fragments = cut_into_fragments(items, 3);
  ASSERT_THAT(fragments, SizeIs(3));
  for (const auto& rows : fragments) ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(fragments[0][0].parts, ElementsAre(SlicePart{0, 0, 4}));
  EXPECT_THAT(fragments[1][0].parts, ElementsAre(SlicePart{0, 4, 8}));
  EXPECT_THAT(fragments[2][0].parts, ElementsAre(SlicePart{0, 8, 10}, SlicePart{2, 0, 2}));
  EXPECT_EQ(fragments[2][0].elements(), 4U);
  ASSERT_THAT(fragments[2][0].places(), SizeIs(2));
  EXPECT_EQ(fragments[2][0].places()[1].begin, 2U);
  EXPECT_EQ(fragments[2][0].places()[1].count, 2U);
}

TEST(FragmentCut, EachElementIsInOneFragment) {
  const std::vector<FragmentItem> items = {
      {c10::kFloat, 7}, {c10::kDouble, 5}, {c10::kFloat, 1}, {c10::kFloat, 92}, {c10::kDouble, 3}};
  for (std::size_t fragments = 1; fragments <= 8; ++fragments) {
    std::vector<std::vector<int>> seen;
    for (const FragmentItem& item : items) seen.emplace_back(item.elements, 0);
    std::size_t least = 100;
    std::size_t most = 0;
    for (const auto& rows : cut_into_fragments(items, fragments)) {
      for (const FragmentRow& row : rows) {
        for (const SlicePart& part : row.parts) {
          EXPECT_EQ(items[part.parameter].dtype, row.dtype);
          for (std::size_t i = part.begin; i < part.end; ++i) ++seen[part.parameter][i];
        }
        if (row.dtype != c10::kFloat) continue;
        least = std::min(least, row.elements());
        most = std::max(most, row.elements());
      }
    }
    EXPECT_LE(most, least + 1) << fragments;
    for (const std::vector<int>& parameter : seen) {
      EXPECT_THAT(parameter, ::testing::Each(1)) << fragments;
    }
  }
}

TEST(FragmentCut, WhatIsRoundedHasRowsOfItsOwn) {
  const std::vector<FragmentItem> items = {
      {c10::kFloat, 6, true}, {c10::kFloat, 2}, {c10::kFloat, 4, true}, {c10::kFloat, 4}};
  const auto fragments = cut_into_fragments(items, 2);
  ASSERT_THAT(fragments, ElementsAre(SizeIs(2), SizeIs(2)));
  for (const auto& rows : fragments) {
    EXPECT_TRUE(rows[0].is_rounded);
    EXPECT_FALSE(rows[1].is_rounded);
  }
  EXPECT_THAT(fragments[0][0].parts, ElementsAre(SlicePart{0, 0, 5}));
  EXPECT_THAT(fragments[0][1].parts, ElementsAre(SlicePart{1, 0, 2}, SlicePart{3, 0, 1}));
  EXPECT_THAT(fragments[1][0].parts, ElementsAre(SlicePart{0, 5, 6}, SlicePart{2, 0, 4}));
  EXPECT_THAT(fragments[1][1].parts, ElementsAre(SlicePart{3, 1, 4}));
}

TEST(FragmentCut, MoreFragmentsThanElements) {
  const std::vector<FragmentItem> items = {{c10::kFloat, 2}};
  const auto fragments = cut_into_fragments(items, 3);
  EXPECT_EQ(std::count_if(fragments.begin(), fragments.end(),
                          [](const auto& rows) { return rows.empty(); }),
            1);
  EXPECT_THAT(cut_into_fragments({}, 1), ElementsAre(IsEmpty()));
}

TEST(FragmentCut, NearEqualBounds) {
  EXPECT_THAT(near_equal_bounds(10, 3), ElementsAre(0, 3, 6, 10));
  EXPECT_THAT(near_equal_bounds(1, 3), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(near_equal_bounds(0, 2), ElementsAre(0, 0, 0));
  EXPECT_THAT(near_equal_bounds(5, 1), ElementsAre(0, 5));
}

}  // namespace
}  // namespace chainmail::internal
