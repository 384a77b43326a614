// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What WorldMachine is made of: sizes, cuts, who stays after accusations, lines of the log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/membership/cut.h"
#include "base/membership/records.h"
#include "base/membership/size_range.h"
#include "base/membership/world/host_table.h"
#include "base/membership/world/reach.h"

namespace chainmail::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SizeRange, FitsTheLargestAllowedSize) {
  const SizeRange sizes{2, 7, 2};
  EXPECT_EQ(sizes.fit(1), 0U);
  EXPECT_EQ(sizes.fit(2), 2U);
  EXPECT_EQ(sizes.fit(5), 4U);
  EXPECT_EQ(sizes.fit(9), 6U);
}

TEST(Cut, IsEvenForEqualRanks) {
  EXPECT_THAT(make_cut(8, std::vector<std::uint32_t>{1, 1}), ElementsAre(0, 4, 8));
  EXPECT_THAT(make_cut(8, std::vector<std::uint32_t>{5, 5, 5}), ElementsAre(0, 3, 6, 8));
  EXPECT_THAT(make_cut(3, std::vector<std::uint32_t>{1, 1, 1}), ElementsAre(0, 1, 2, 3));
}

TEST(Cut, GivesASlowRankLess) {
  EXPECT_THAT(make_cut(8, std::vector<std::uint32_t>{3, 1}), ElementsAre(0, 2, 8));
}

// Against all cuts, for small numbers.
TEST(Cut, HasTheSmallestLargestCost) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::array<std::uint32_t, 3> weights{seed % 7 + 1, seed % 5 + 1, seed % 3 + 1};
    const std::uint32_t shards = 3 + seed % 8;
    std::uint32_t best = ~0U;
    for (std::uint32_t a = 1; a + 1 < shards; ++a) {
      for (std::uint32_t b = a + 1; b < shards; ++b) {
        best = std::min(
            best, std::max({a * weights[0], (b - a) * weights[1], (shards - b) * weights[2]}));
      }
    }
    const auto cut = make_cut(shards, weights);
    std::uint32_t most = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_LT(cut[rank], cut[rank + 1]);
      most = std::max(most, (cut[rank + 1] - cut[rank]) * weights.at(rank));
    }
    EXPECT_EQ(cut.back(), shards);
    EXPECT_EQ(most, best) << "seed " << seed;
  }
}

/// A host for each member.
std::vector<HostId> hosts(std::uint32_t size) {
  std::vector<HostId> hosts(size);
  std::iota(hosts.begin(), hosts.end(), 0U);
  return hosts;
}

TEST(Reach, KeepsAllWithoutAccusations) {
  EXPECT_THAT(largest_reaching_set(hosts(3), {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(largest_reaching_set(hosts(0), {}), IsEmpty());
}

TEST(Reach, DropsWhomAllAccuse) {
  const std::vector<Accusation> accusations{{0, 1}, {2, 1}, {3, 1}};
  EXPECT_THAT(largest_reaching_set(hosts(4), accusations), ElementsAre(0, 2, 3));
}

TEST(Reach, DropsWhoAccusesAll) {
  const std::vector<Accusation> accusations{{1, 0}, {1, 2}, {1, 3}};
  EXPECT_THAT(largest_reaching_set(hosts(4), accusations), ElementsAre(0, 2, 3));
}

TEST(Reach, KeepsTheLargerSideOfACut) {
  std::vector<Accusation> accusations;
  for (std::uint32_t a = 0; a < 20; ++a) {
    for (std::uint32_t b = 20; b < 45; ++b) accusations.push_back({a, b});
  }
  const auto staying = largest_reaching_set(hosts(45), accusations);
  EXPECT_EQ(staying.size(), 25U);
  EXPECT_EQ(staying.front(), 20U);
}

// Each rank of the host that is cut off has seen another one first.
TEST(Reach, TakesFromOneHostRatherThanFromTwo) {
  const std::vector<HostId> hosts{0, 0, 1, 1, 2, 2};
  const std::vector<Accusation> accusations{{0, 2}, {1, 2}, {2, 0}, {3, 4}, {4, 2}, {5, 2}};
  EXPECT_THAT(largest_reaching_set(hosts, accusations), ElementsAre(0, 1, 4, 5));
}

TEST(Reach, PrefersWhoSpokeThenTheOldest) {
  EXPECT_THAT(largest_reaching_set(hosts(2), std::vector<Accusation>{{1, 0}}), ElementsAre(1));
  EXPECT_THAT(largest_reaching_set(hosts(2), std::vector<Accusation>{{1, 0}, {0, 1}}),
              ElementsAre(0));
}

// Against all sets, for small numbers.
TEST(Reach, IsTheLargest) {
  for (std::uint32_t seed = 1; seed < 300; ++seed) {
    std::uint32_t random = seed;
    std::vector<Accusation> accusations;
    for (std::uint32_t i = 0; i < seed % 11; ++i) {
      random = random * 1664525U + 1013904223U;
      accusations.push_back({random >> 8U & 7U, random >> 16U & 7U});
    }
    std::size_t best = 0;
    for (std::uint32_t set = 0; set < 256; ++set) {
      const bool is_fine = std::none_of(accusations.begin(), accusations.end(), [&](auto& a) {
        return a.from != a.peer && (set >> a.from & 1U) != 0 && (set >> a.peer & 1U) != 0;
      });
      if (is_fine)
        best = std::max<std::size_t>(best, static_cast<std::size_t>(__builtin_popcount(set)));
    }
    EXPECT_EQ(largest_reaching_set(hosts(8), accusations).size(), best) << "seed " << seed;
  }
}

TEST(Reach, EndsWhereEverybodyAccusesAnybody) {
  std::vector<Accusation> accusations;
  std::uint32_t random = 1;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    random = random * 1664525U + 1013904223U;
    accusations.push_back({random >> 8U & 127U, random >> 16U & 127U});
  }
  EXPECT_FALSE(largest_reaching_set(hosts(128), accusations).empty());
}

TEST(Log, WritesOneLine) {
  const LogRecord record{4, Change::kLost, "10.0.0.7", 3, 120, 2, "killed\nby signal 9"};
  EXPECT_EQ(line_of(record, 1542536656974259605U),
            "4 LOST 10.0.0.7 1542536656974259605 3 120 2 killed by signal 9");
}

TEST(Hosts, WaitTwiceAsLongAfterEachFailure) {
  HostTable hosts(1);
  EXPECT_THAT(hosts.read({{"a", 1}, {"b", 1}}), IsEmpty());
  const WorldOptions options;
  std::int64_t before = 0;
  for (int failure = 0; failure < 12; ++failure) {
    hosts.fail(1);
    const auto wait = hosts.wait_after_failure(1, options).count();
    const std::int64_t middle = std::min<std::int64_t>(1000LL << failure, 300'000);
    EXPECT_GE(wait, middle * 3 / 4);
    EXPECT_LE(wait, middle * 5 / 4);
    EXPECT_NE(wait, before);
    before = wait;
  }
}

}  // namespace
}  // namespace chainmail::membership
