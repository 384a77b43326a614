// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/shard_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/membership/cut.h"

namespace chainmail::launch {
namespace {

using membership::World;
using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Times = std::vector<std::uint32_t>;

constexpr std::uint32_t kShards = 8;
constexpr int kMany = 5000;

class ShardBalanceTest : public ::testing::Test {
 protected:
  ShardBalanceTest() { change({4, 5}, {1, 1}); }

  /// Another world, whose shards are divided by these times.
  void change(std::vector<membership::MemberId> members, const Times& times) {
    ++world_.generation;
    world_.members = std::move(members);
    world_.hosts.assign(world_.members.size(), 0);
    world_.cut = membership::make_cut(kShards, times);
  }
  /// A word of each rank.
  Times round(const Times& times) {
    Times wanted;
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      EXPECT_THAT(wanted, IsEmpty()) << "before all were heard";
      wanted = balance_.on_time(world_, world_.members[rank], microseconds(times[rank]));
    }
    return wanted;
  }
  /// The round, counted from 1, in which shards are to move; 0 if never.
  int rounds_to_move(const Times& times, int most = kMany) {
    for (int i = 1; i <= most; ++i) {
      if (!round(times).empty()) return i;
    }
    return 0;
  }

  World world_;
  ShardBalance balance_;
};

TEST_F(ShardBalanceTest, MovesShardsAwayFromASlowRank) {
  const Times times{10'000, 50'000};
  EXPECT_EQ(rounds_to_move(times), 4);
  change({4, 5}, times);
  EXPECT_THAT(world_.cut, ElementsAre(0, 7, 8));
  EXPECT_EQ(rounds_to_move(times), 0) << "nothing is left to gain";
}

TEST_F(ShardBalanceTest, MovesThemBackWhenItIsFastAgain) {
  change({4, 5}, {10'000, 50'000});
  EXPECT_GT(rounds_to_move({10'000, 10'000}), 0);
}

TEST_F(ShardBalanceTest, LeavesThemWhereTheGainIsSmall) {
  EXPECT_EQ(rounds_to_move({10'000, 15'000}), 0) << "5 and 3 shards: 50 ms instead of 60";
  EXPECT_EQ(rounds_to_move({100, 500}), 0) << "steps of 2 ms";
}

TEST_F(ShardBalanceTest, LeavesThemWhereEachRankHasOne) {
  change({0, 1, 2, 3, 4, 5, 6, 7}, Times(kShards, 1));
  Times times(kShards, 10'000);
  times.back() = 100'000;
  EXPECT_EQ(rounds_to_move(times), 0);
}

TEST_F(ShardBalanceTest, AHiccupMovesNothing) {
  for (int i = 0; i < kMany; ++i) {
    const bool is_held_up = i % 4 != 3;
    EXPECT_THAT(round({10'000, is_held_up ? 50'000U : 10'000U}), IsEmpty()) << "round " << i;
  }
}

TEST_F(ShardBalanceTest, HearsEachRankOfTheWorldFirst) {
  for (int i = 0; i < kMany; ++i) {
    EXPECT_THAT(balance_.on_time(world_, 5, microseconds(50'000)), IsEmpty()) << "of 4 nothing";
    EXPECT_THAT(balance_.on_time(world_, 9, microseconds(1)), IsEmpty()) << "of none of them";
  }
  // A world later what was heard before counts no more.
  EXPECT_THAT(round({10'000, 50'000}), IsEmpty());
  EXPECT_THAT(round({10'000, 50'000}), IsEmpty());
  EXPECT_THAT(round({10'000, 50'000}), IsEmpty());
  change({4, 5}, {1, 1});
  EXPECT_EQ(rounds_to_move({10'000, 50'000}), 4);
}

TEST_F(ShardBalanceTest, MovesMoreAndMoreRarelyWhereRanksTakeTurns) {
  std::vector<int> moves;
  for (int i = 0; i < 6; ++i) {
    const Times times{i % 2 == 0 ? 50'000U : 10'000U, i % 2 == 0 ? 10'000U : 50'000U};
    moves.push_back(rounds_to_move(times));
    change({4, 5}, times);
  }
  EXPECT_THAT(moves, ElementsAre(4, 20, 36, 68, 132, 260));
  EXPECT_LE(std::accumulate(moves.begin(), moves.end(), 0), kMany);
}

TEST_F(ShardBalanceTest, TimesBeyondAllMeasureAreTimes) {
  EXPECT_EQ(rounds_to_move({1, 1}), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(balance_.on_time(world_, 4, microseconds(0)), IsEmpty());
    EXPECT_THAT(balance_.on_time(world_, 5, microseconds::max()), IsEmpty());
  }
  EXPECT_THAT(balance_.on_time(world_, 4, microseconds(0)), IsEmpty());
  EXPECT_THAT(balance_.on_time(world_, 5, microseconds::max()), ElementsAre(1, ~0U));
}

}  // namespace
}  // namespace chainmail::launch
