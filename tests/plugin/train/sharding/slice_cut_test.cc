// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/slice_cut.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace chainmail::internal {
namespace {

struct Layout {
  std::vector<ParameterPlace> places;
  std::size_t end = 0;
};

// One parameter behind the other, each at a multiple of `alignment` elements.
Layout lay_out(const std::vector<std::size_t>& counts, std::size_t alignment) {
  Layout layout;
  for (const std::size_t count : counts) {
    layout.places.push_back({layout.end, count});
    layout.end += (count + alignment - 1) / alignment * alignment;
  }
  return layout;
}

// Of elements of 2, 4 and 8 bytes on cache lines, and of whole blocks of a 16-bit wire.
constexpr std::size_t kAlignments[] = {32, 16, 8, 256};
constexpr std::size_t kUnits[] = {64, 4096};
const std::vector<std::vector<std::size_t>> kModels = {
    {1},       {63},          {65},           {1000003}, {1, 63, 65, 1000003}, {1000003, 65, 63, 1},
    {0, 5, 0}, {64, 64, 128}, {4096, 1, 8192}};

void check(const std::vector<std::size_t>& counts, std::size_t alignment, std::size_t slices,
           std::size_t unit) {
  const Layout layout = lay_out(counts, alignment);
  const auto bounds = cut_into_slices(layout.places, layout.end, slices, unit);
  ASSERT_EQ(bounds.size(), slices + 1);
  EXPECT_EQ(bounds.front(), 0U);
  EXPECT_EQ(bounds.back(), layout.end);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  std::vector<std::size_t> covered(counts.size());
  for (std::size_t slice = 0; slice < slices; ++slice) {
    for (const SlicePart& part : parts_of_slice(layout.places, bounds[slice], bounds[slice + 1])) {
      EXPECT_EQ(part.begin, covered[part.parameter]) << "a gap or an overlap";
      EXPECT_LT(part.begin, part.end);
      EXPECT_EQ(part.begin % unit, 0U);
      covered[part.parameter] = part.end;
    }
    // No cut is further from an equal share than the unit, or a gap.
    const double share =
        static_cast<double>(layout.end) * static_cast<double>(slice) / static_cast<double>(slices);
    EXPECT_LE(share - static_cast<double>(bounds[slice]), static_cast<double>(unit));
    EXPECT_LE(static_cast<double>(bounds[slice]) - share, static_cast<double>(alignment));
  }
  EXPECT_EQ(covered, counts);
}

TEST(SliceCut, TilesEveryParameterOnce) {
  for (const auto& counts : kModels) {
    for (const std::size_t alignment : kAlignments) {
      for (std::size_t slices = 1; slices <= 8; ++slices) {
        for (const std::size_t unit : kUnits) {
          SCOPED_TRACE("alignment " + std::to_string(alignment) + ", " + std::to_string(slices) +
                       " slices, unit " + std::to_string(unit) + ", first parameter of " +
                       std::to_string(counts.front()));
          check(counts, alignment, slices, unit);
        }
      }
    }
  }
}

TEST(SliceCut, MovesDownToTheUnitWithinTheParameter) {
  const Layout layout = lay_out({1, 1000}, 16);
  EXPECT_EQ(cut_into_slices(layout.places, layout.end, 2, 64),
            (std::vector<std::size_t>{0, 16 + 448, layout.end}));  // 512 was wanted
  EXPECT_EQ(parts_of_slice(layout.places, 0, 464),
            (std::vector<SlicePart>{{0, 0, 1}, {1, 0, 448}}));
}

TEST(SliceCut, AGapBelongsToTheSliceBeforeIt) {
  const Layout layout = lay_out({17, 16}, 32);  // ends at 17 of 64; a cut at 32 and one at 21
  EXPECT_EQ(cut_into_slices(layout.places, layout.end, 3, 64),
            (std::vector<std::size_t>{0, 32, 32, 64}));
}

TEST(SliceCut, NothingAtAll) {
  EXPECT_EQ(cut_into_slices({}, 0, 3, 64), (std::vector<std::size_t>{0, 0, 0, 0}));
  EXPECT_TRUE(parts_of_slice({}, 0, 0).empty());
}

TEST(SliceCut, WholeParametersGoToWhoHasLeast) {
  EXPECT_EQ(share_whole(std::vector<std::size_t>{3, 10, 4, 5}, 2),
            (std::vector<std::size_t>{1, 0, 1, 1}));
  EXPECT_EQ(share_whole(std::vector<std::size_t>{7, 7, 7}, 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(share_whole(std::vector<std::size_t>{7}, 4), (std::vector<std::size_t>{0}));
}

}  // namespace
}  // namespace chainmail::internal
