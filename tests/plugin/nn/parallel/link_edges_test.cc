// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/link_edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LinkEdges, FitTogether) {
  EXPECT_EQ(find_unmet_edge({}), "");
  EXPECT_EQ(find_unmet_edge({{}, {}}), "");
  // There and back.
  EXPECT_EQ(find_unmet_edge({{{{}, {1}}, {{1}, {}}}, {{{0}, {0}}}}), "");
  // Both send first.
  EXPECT_EQ(find_unmet_edge({{{{}, {1}}, {{1}, {}}}, {{{}, {0}}, {{0}, {}}}}), "");
  // To itself, twice, and from one rank twice in one link.
  EXPECT_EQ(find_unmet_edge({{{{}, {0, 0, 1}}, {{0}, {1}}, {{0}, {}}}, {{{0, 0}, {}}}}), "");
}

TEST(LinkEdges, AreCounted) {
  EXPECT_EQ(find_unmet_edge({{{{}, {1}}}, {}}),
            "rank 0 sends to rank 1 in 1 link, rank 1 receives from rank 0 in 0 links");
  EXPECT_EQ(find_unmet_edge({{{{}, {}}}, {}, {{{1}, {}}, {{1}, {}}}}),
            "rank 1 sends to rank 2 in 0 links, rank 2 receives from rank 1 in 2 links");
  EXPECT_EQ(find_unmet_edge({{{{}, {0}}}}),
            "rank 0 sends to rank 0 in 1 link, rank 0 receives from rank 0 in 0 links");
}

TEST(LinkEdges, ThatWaitForEachOtherAreFound) {
  EXPECT_THAT(find_unmet_edge({{{{1}, {1}}}, {{{0}, {0}}}, {{{}, {}}}}),
              AllOf(HasSubstr("rank 0 in link 0 for rank 1"),
                    HasSubstr("rank 1 in link 0 for rank 0"), ::testing::Not(HasSubstr("rank 2"))));
  // A rank that takes from itself what it puts there later.
  EXPECT_THAT(find_unmet_edge({{{{}, {}}, {{0}, {}}, {{}, {0}}}}),
              HasSubstr("rank 0 in link 1 for rank 0"));
}

}  // namespace
}  // namespace chainmail::internal
