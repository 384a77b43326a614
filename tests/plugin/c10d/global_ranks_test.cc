// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// By which numbers messages name the ranks of a group.

#include "plugin/c10d/global_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugin/c10d/store/group/given_up.h"
#include "tests/plugin/job/recorded.h"

namespace chainmail::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Ranks = std::vector<int>;

constexpr bool kByLauncher = true;
constexpr bool kByOthers = false;

BackendOptions with_ranks(Ranks ranks) {
  BackendOptions options;
  options.group_name = "pair";
  options.global_ranks = std::move(ranks);
  return options;
}

TEST(GlobalRanks, AreSentWithTheNode) {
  const RankIdentity identity = decode(encode({"node 7", 12}));
  EXPECT_EQ(identity.node, "node 7");
  EXPECT_EQ(identity.global_rank, 12);
  EXPECT_EQ(decode(encode({"", -1})).global_rank, -1);
}

TEST(GlobalRanks, AreThoseThatTheMembersHaveSent) {
  EXPECT_EQ(choose_global_ranks({3, 5}, kByOthers, {}), Ranks({3, 5}));
  EXPECT_EQ(choose_global_ranks({5, 3}, kByLauncher, {}), Ranks({5, 3}));
}

TEST(GlobalRanks, AreTheCallersUnlessTheLauncherKnowsBetter) {
  EXPECT_EQ(choose_global_ranks({3, 5}, kByOthers, with_ranks({4, 6})), Ranks({4, 6}));
  EXPECT_EQ(choose_global_ranks({3, 5}, kByLauncher, with_ranks({4, 6})), Ranks({3, 5}));
}

TEST(GlobalRanks, AreThoseInTheGroupWhereNobodyKnowsOrJobsMix) {
  EXPECT_EQ(choose_global_ranks({-1, -1, -1}, kByOthers, {}), Ranks({0, 1, 2}));
  EXPECT_EQ(choose_global_ranks({3, -1}, kByOthers, {}), Ranks({0, 1}));
  EXPECT_EQ(choose_global_ranks({0, 1, 0, 1}, kByOthers, {}), Ranks({0, 1, 2, 3}));
}

TEST(GlobalRanks, ComeFromTheEnvironment) {
  const auto torchrun = job_rank(nullptr, environment_of({{"RANK", "2"},
                                                          {"WORLD_SIZE", "3"},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"MASTER_PORT", "1234"}}));
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->rank, 2);
  EXPECT_EQ(torchrun->size, 3);
  const auto mpirun = job_rank(nullptr, environment_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                                        {"OMPI_COMM_WORLD_SIZE", "4"},
                                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                        {"PMIX_NAMESPACE", "a"}}));
  ASSERT_TRUE(mpirun);
  EXPECT_EQ(mpirun->rank, 1);
  EXPECT_FALSE(job_rank(nullptr, environment_of({})));
  EXPECT_FALSE(job_rank(nullptr, environment_of({{"RANK", "2"}})));  // of how many?
}

TimeoutError absence_of(int member, const BackendOptions& options,
                        const std::optional<JobRank>& place, int rank) {
  try {
    throw_not_joined(TimeoutError("member", {member}), options, place, rank, 2);
  } catch (const TimeoutError& error) {
    return error;
  }
}

TEST(GlobalRanks, NameAMemberThatDoesNotJoin) {
  const TimeoutError given = absence_of(1, with_ranks({3, 5}), JobRank{3, 8}, 0);
  EXPECT_THAT(given.what(), HasSubstr("rank 5 (member 1 of 2 of group \"pair\") did not join; "
                                      "rank 3 on "));
  EXPECT_EQ(given.missing_ranks(), Ranks{5});
  const TimeoutError whole = absence_of(0, with_ranks({}), JobRank{1, 2}, 1);
  EXPECT_THAT(whole.what(), HasSubstr("rank 0 (member 0"));
  EXPECT_EQ(whole.missing_ranks(), Ranks{0});
}

TEST(GlobalRanks, NameAMemberThatHasGivenUp) {
  try {
    throw_gave_up(GaveUp(1, "on n5 gave up"), with_ranks({3, 5}), JobRank{3, 8}, 0, 2);
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 5 (member 1 of 2 of group \"pair\") on n5 gave up, "
                                        "before rank 3 on "));
    EXPECT_EQ(error.missing_ranks(), Ranks{5});
  }
}

TEST(GlobalRanks, AreLeftOutOfTheErrorWhereOnlyTheMissingMemberKnowsThem) {
  const TimeoutError error = absence_of(1, with_ranks({}), JobRank{3, 8}, 0);
  EXPECT_THAT(error.what(), HasSubstr("member 1 of 2"));
  EXPECT_THAT(error.what(), Not(HasSubstr("rank 1")));
  EXPECT_EQ(error.missing_ranks(), Ranks{});
}

}  // namespace
}  // namespace chainmail::internal
