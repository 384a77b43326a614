// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job/options.h"
#include "tests/launcher/placement/place_ranks.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

Host host(std::string name, int slots, std::optional<int> max_slots = {}) {
  Host out;
  out.name = std::move(name);
  out.slots = slots;
  out.has_slots = true;
  out.max_slots = max_slots;
  return out;
}

Host plain_host(std::string name) {
  Host out;
  out.name = std::move(name);
  return out;
}

const std::vector<Host> kThree = {host("a", 2), host("b", 1), host("c", 3)};

// "0a0 1a1 2b0": rank, host, local rank.
std::string layout(const Placement& placement) {
  std::string out;
  for (const PlacedRank& rank : placement.ranks) {
    if (!out.empty()) out += " ";
    out += std::to_string(rank.rank) + placement.nodes[static_cast<std::size_t>(rank.node)].name +
           std::to_string(rank.local_rank);
  }
  return out;
}

std::string refusal(const std::vector<Host>& hosts, const PlacementOptions& options) {
  try {
    return "accepted: " + layout(place_ranks(hosts, options));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Placement, OneRankPerSlotInHostOrder) {
  EXPECT_EQ(layout(place_ranks(kThree, {})), "0a0 1a1 2b0 3c0 4c1 5c2");
}

TEST(Placement, FewerRanksLeaveHostsOut) {
  const Placement placement = place_ranks(kThree, {.ranks = 3});
  EXPECT_EQ(layout(placement), "0a0 1a1 2b0");
  EXPECT_EQ(placement.nodes.size(), 2U);
  EXPECT_EQ(placement.ranks_of_node, (std::vector<int>{2, 1}));
}

TEST(Placement, PerNode) {
  EXPECT_EQ(layout(place_ranks(kThree, {.per_node = 1})), "0a0 1b0 2c0");
  EXPECT_EQ(layout(place_ranks(kThree, {.ranks = 2, .per_node = 1})), "0a0 1b0");
}

TEST(Placement, TooManyRanksNameBothNumbers) {
  const std::string text = refusal({host("a", 2)}, {.ranks = 3});
  EXPECT_THAT(text, HasSubstr("3 ranks"));
  EXPECT_THAT(text, HasSubstr("2 slots"));
  EXPECT_THAT(text, HasSubstr("--oversubscribe"));
}

TEST(Placement, PerNodeBeyondSlotsIsRefused) {
  EXPECT_THAT(refusal(kThree, {.per_node = 2}), HasSubstr("host b, which has 1 slot"));
  EXPECT_THAT(refusal(kThree, {.ranks = 4, .per_node = 1}), HasSubstr("gives 3"));
  EXPECT_EQ(
      layout(place_ranks({host("a", 1), host("b", 1)}, {.per_node = 2, .oversubscribe = true})),
      "0a0 1a1 2b0 3b1");
}

TEST(Placement, PerNodeIsTheNumberOfSlotsWhereNoneWasWritten) {
  const std::vector<Host> plain = {plain_host("a"), plain_host("b")};
  EXPECT_EQ(layout(place_ranks(plain, {.ranks = 4, .per_node = 2})), "0a0 1a1 2b0 3b1");
  EXPECT_EQ(layout(place_ranks(plain, {.per_node = 2})), "0a0 1a1 2b0 3b1");
  EXPECT_EQ(place_ranks(plain, {.ranks = 10, .per_node = 5}).ranks_of_node,
            (std::vector<int>{5, 5}));
  EXPECT_THAT(refusal(plain, {.ranks = 5, .per_node = 2}), HasSubstr("gives 4"));
  EXPECT_THAT(refusal({plain_host("a"), host("b", 1)}, {.per_node = 2}),
              HasSubstr("host b, which has 1 slot"));
}

TEST(Placement, PlainHostsHaveOneSlotAndTheMessageSaysWhatToWrite) {
  const std::vector<Host> plain = {plain_host("a"), plain_host("b")};
  EXPECT_EQ(layout(place_ranks(plain, {})), "0a0 1b0");
  const std::string text = refusal(plain, {.ranks = 4});
  EXPECT_THAT(text, HasSubstr("4 ranks wanted, but there are 2 slots"));
  EXPECT_THAT(text, HasSubstr("--per-node 2"));
  EXPECT_THAT(text, HasSubstr("'a slots=2'"));
}

TEST(Placement, OversubscribedRoundsStayNeighbours) {
  EXPECT_EQ(layout(place_ranks({host("a", 2), host("b", 1)}, {.ranks = 5, .oversubscribe = true})),
            "0a0 1a1 2a2 3a3 4b0");
}

TEST(Placement, MaxSlotsHoldsAlways) {
  const std::vector<Host> hosts = {host("a", 1, 2), host("b", 1, 1)};
  EXPECT_EQ(layout(place_ranks(hosts, {.ranks = 3, .oversubscribe = true})), "0a0 1a1 2b0");
  EXPECT_THAT(refusal(hosts, {.ranks = 4, .oversubscribe = true}), HasSubstr("allows 3"));
  EXPECT_THAT(refusal(hosts, {.per_node = 2, .oversubscribe = true}), HasSubstr("max_slots=1"));
}

TEST(Placement, ByNodeGoesRoundTheHosts) {
  EXPECT_EQ(layout(place_ranks(kThree, {.map_by = MapBy::kNode})), "0a0 1b0 2c0 3a1 4c1 5c2");
  EXPECT_EQ(layout(place_ranks(kThree, {.ranks = 4, .map_by = MapBy::kNode})), "0a0 1b0 2c0 3a1");
  EXPECT_EQ(layout(place_ranks(kThree, {.ranks = 2, .map_by = MapBy::kNode})), "0a0 1b0");
}

TEST(Placement, ByNodeNumberedBySlot) {
  EXPECT_EQ(
      layout(place_ranks(kThree, {.ranks = 4, .map_by = MapBy::kNode, .rank_by = MapBy::kSlot})),
      "0a0 1a1 2b0 3c0");
  EXPECT_EQ(layout(place_ranks(kThree, {.rank_by = MapBy::kNode})), "0a0 1b0 2c0 3a1 4c1 5c2");
}

TEST(Placement, ByNodeWithANumberPerNode) {
  const std::vector<Host> plain = {plain_host("a"), plain_host("b")};
  EXPECT_EQ(layout(place_ranks(plain, {.per_node = 2, .map_by = MapBy::kNode})), "0a0 1b0 2a1 3b1");
  EXPECT_EQ(layout(place_ranks(plain, {.ranks = 3, .per_node = 2, .map_by = MapBy::kNode})),
            "0a0 1b0 2a1");
  EXPECT_EQ(layout(place_ranks(plain, {.ranks = 3, .per_node = 2})), "0a0 1a1 2b0");
}

TEST(Placement, ByNodeOversubscribed) {
  const std::vector<Host> hosts = {host("a", 1, 2), host("b", 2)};
  EXPECT_THAT(refusal(hosts, {.ranks = 4, .map_by = MapBy::kNode}), HasSubstr("3 slots"));
  EXPECT_EQ(
      place_ranks(hosts, {.ranks = 5, .oversubscribe = true, .map_by = MapBy::kNode}).ranks_of_node,
      (std::vector<int>{2, 3}))
      << "max_slots holds";
}

Placement place(const std::vector<ApplicationPlacement>& programs, PlacementOptions options = {}) {
  return place_applications(programs, options);
}

TEST(Placement, SeveralProgramsShareTheHostsOfTheFirst) {
  const Placement placement = place({{kThree, 1, {}}, {{}, 3, {}}, {{}, 2, {}}});
  EXPECT_EQ(layout(placement), "0a0 1a1 2b0 3c0 4c1 5c2");
  std::string programs;
  for (const PlacedRank& rank : placement.ranks) programs += std::to_string(rank.application);
  EXPECT_EQ(programs, "011122");
  EXPECT_THROW((void)place({{kThree, 4, {}}, {{}, 3, {}}}), UsageError);
  EXPECT_EQ(place({{kThree, 4, {}}, {{}, 3, {}}}, {.oversubscribe = true}).ranks.size(), 7U);
  EXPECT_THROW((void)place({{kThree, 6, {}}, {{}, {}, {}}}), UsageError) << "no slot is left";
}

TEST(Placement, SeveralProgramsPerNode) {
  const std::vector<Host> plain = {plain_host("a"), plain_host("b")};
  const Placement placement = place({{plain, {}, 1}, {{}, {}, 2}});
  EXPECT_EQ(layout(placement), "0a0 1b0 2a1 3a2 4b1 5b2");
  EXPECT_EQ(placement.ranks_of_node, (std::vector<int>{3, 3}));
  EXPECT_THROW((void)place({{{host("a", 2)}, {}, 1}, {{}, {}, 2}}), UsageError);
}

TEST(Placement, ProgramsWithHostsOfTheirOwn) {
  const Placement placement =
      place({{{host("a", 2)}, 2, {}}, {{host("b", 1), host("a", 1)}, {}, {}}});
  EXPECT_EQ(layout(placement), "0a0 1a1 2b0 3a2");
  EXPECT_EQ(placement.nodes.size(), 2U) << "a host is one node, whoever names it";
}

TEST(Placement, HugeNumbersDoNotOverflow) {
  std::vector<Host> hosts;
  for (int i = 0; i < 4000; ++i) hosts.push_back(host("n" + std::to_string(i), 1024));
  EXPECT_THAT(refusal(hosts, {.ranks = 65536, .per_node = 1}), HasSubstr("gives 4000"));
}

}  // namespace
}  // namespace chainmail::launch
