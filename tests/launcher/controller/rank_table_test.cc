// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/rank_table.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

TEST(RankTable, KnowsWhereRanksAre) {
  test::FakeJob fake({2, 1});
  const RankTable& ranks = fake.job.ranks;
  EXPECT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks.nodes(), (std::vector<std::uint32_t>{0, 0, 1}));
  EXPECT_EQ(ranks.host_of(2), "n1");
  EXPECT_EQ(ranks.name_of(2), "rank 2 on host n1");
}

TEST(RankTable, ANumberFromAnotherNodesAgentIsRefusedWithBothHosts) {
  test::FakeJob fake({2, 1});
  EXPECT_EQ(fake.job.ranks.checked(1, 2), 2U);
  try {
    (void)fake.job.ranks.checked(1, 0);
    ADD_FAILURE() << "taken";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.native_code(), EPROTO);
    EXPECT_NE(std::string(error.what()).find("rank 0 is on host n0, not on n1"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW((void)fake.job.ranks.checked(1, 3), SystemError);
  EXPECT_THROW((void)fake.job.ranks.checked(1, ~std::uint32_t{0}), SystemError);
}

TEST(RankTable, NamesAtMostEightRanks) {
  test::FakeJob fake({12});
  const RankTable& ranks = fake.job.ranks;
  EXPECT_EQ(ranks.names_of({}), "all ranks");
  EXPECT_EQ(ranks.names_of({3}), "rank 3 on host n0");
  EXPECT_EQ(ranks.names_of({1, 3}), "ranks 1 on host n0, 3 on host n0");
  const std::string many = ranks.names_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_NE(many.find("7 on host n0 and 2 more"), std::string::npos) << many;
  EXPECT_EQ(many.find("8 on host n0"), std::string::npos) << many;
}

TEST(RankTable, TellsWhoHasEndedBefore) {
  test::FakeJob fake({2});
  EXPECT_EQ(fake.job.ranks.gone_text(), "");
  fake.job.ranks[1].is_gone = true;
  EXPECT_EQ(fake.job.ranks.gone_text(), "; rank 1 on host n0 ended before, with code 0");
}

TEST(RankTable, GrowsByNodesAndRanks) {
  RankTable ranks({}, "member");
  EXPECT_EQ(ranks.names_of({}), "all members");
  EXPECT_EQ(ranks.add_node("n0"), 0U);
  EXPECT_EQ(ranks.add_rank(0), 0U);
  const RankTable::Rank& first = ranks[0];
  EXPECT_EQ(ranks.add_node("n1"), 1U);
  for (std::uint32_t rank = 1; rank < 100; ++rank) EXPECT_EQ(ranks.add_rank(1), rank);
  EXPECT_EQ(&ranks[0], &first) << "who looks at a rank may add others";
  EXPECT_EQ(ranks.name_of(99), "member 99 on host n1");
  EXPECT_EQ(ranks.names_of({0, 1}), "members 0 on host n0, 1 on host n1");
  EXPECT_EQ(ranks.checked(1, 99), 99U);
}

}  // namespace
}  // namespace chainmail::launch
