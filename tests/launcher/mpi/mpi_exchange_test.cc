// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_exchange.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::launch {
namespace {

// Ranks 0, 1 on node 0, 2 on node 1, 3 on node 2.
class MpiExchangeTest : public ::testing::Test {
 protected:
  // "node:op key data" or "node:op id=status name=value..." of what was sent, then forgets it.
  std::string sent() { return std::exchange(sent_, {}); }

  void gather(std::uint32_t node, std::vector<std::uint32_t> ranks, const std::string& data,
              const std::string& key = "fence") {
    exchange_.handle(node, {MpiOp::kGather, 0, 0, key, std::move(ranks), {}, data});
  }
  void name(MpiOp op, std::uint32_t node, std::uint64_t id, std::uint32_t rank,
            std::vector<MpiEntry> entries, std::int32_t waits = 0) {
    exchange_.handle(node, {op, id, waits, {}, {rank}, std::move(entries), {}});
  }

  std::string sent_;
  MpiExchange exchange_{{0, 0, 1, 2}, [this](std::uint32_t node, const MpiMessage& message) {
                          sent_ += std::to_string(node) + ":";
                          if (message.op == MpiOp::kGathered) {
                            sent_ += message.key + " " + message.data + ";";
                            return;
                          }
                          sent_ += (message.op == MpiOp::kFetch ? "fetch " : "answer ") +
                                   std::to_string(message.id) + "=" +
                                   std::to_string(message.status);
                          for (const auto& entry : message.entries) {
                            sent_ += " " + entry.key + "=" + entry.value;
                          }
                          sent_ += message.data + ";";
                        }};
};

TEST_F(MpiExchangeTest, AFenceWaitsForEveryNode) {
  gather(2, {}, "c");
  gather(0, {}, "a");
  EXPECT_EQ(sent(), "");
  gather(1, {}, "b");
  EXPECT_EQ(sent(), "0:fence abc;1:fence abc;2:fence abc;");
}

TEST_F(MpiExchangeTest, AFastNodeMayBeFencesAhead) {
  gather(0, {}, "1");
  gather(0, {}, "2");
  gather(1, {}, "1");
  gather(2, {}, "1");
  EXPECT_EQ(sent(), "0:fence 111;1:fence 111;2:fence 111;");
  gather(2, {}, "2");
  gather(1, {}, "2");
  EXPECT_EQ(sent(), "0:fence 222;1:fence 222;2:fence 222;");
}

TEST_F(MpiExchangeTest, GroupsOfRanksFenceApart) {
  gather(0, {1, 2}, "a");
  gather(0, {}, "A");
  gather(1, {1, 2}, "b");
  EXPECT_EQ(sent(), "0:fence ab;1:fence ab;");
  gather(0, {1}, "x");
  EXPECT_EQ(sent(), "0:fence x;");
  gather(0, {1, 2}, "c", "connect");
  gather(1, {1, 2}, "d");
  EXPECT_EQ(sent(), "");
}

TEST_F(MpiExchangeTest, OnlyNodesOfTheGroupMaySpeak) {
  EXPECT_THROW(gather(2, {1, 2}, "x"), SystemError);
  EXPECT_THROW(gather(0, {4}, "x"), SystemError);
  EXPECT_THROW(exchange_.handle(0, {MpiOp::kReady, 0, 0, {}, {}, {}, {}}), SystemError);
  EXPECT_THROW(exchange_.handle(0, {MpiOp::kFetch, 0, 0, {}, {}, {}, {}}), SystemError);
}

TEST_F(MpiExchangeTest, FetchesFindTheirWayBack) {
  exchange_.handle(0, {MpiOp::kFetch, 7, 0, {}, {3}, {}, {}});
  exchange_.handle(1, {MpiOp::kFetch, 7, 0, {}, {0}, {}, {}});
  EXPECT_EQ(sent(), "2:fetch 1=0;0:fetch 2=0;");
  exchange_.handle(0, {MpiOp::kAnswer, 2, 0, {}, {}, {}, "zero"});
  exchange_.handle(2, {MpiOp::kAnswer, 1, kMpiNotFound, {}, {}, {}, {}});
  EXPECT_EQ(sent(), "1:answer 7=0zero;0:answer 7=1;");
  EXPECT_THROW(exchange_.handle(2, {MpiOp::kAnswer, 1, 0, {}, {}, {}, {}}), SystemError);
}

TEST_F(MpiExchangeTest, NamesAreFoundUntilTheyAreTakenBack) {
  name(MpiOp::kLookup, 1, 1, 2, {{"port", ""}});
  EXPECT_EQ(sent(), "1:answer 1=1;");
  name(MpiOp::kPublish, 0, 1, 0, {{"port", "99"}});
  name(MpiOp::kLookup, 1, 2, 2, {{"port", ""}});
  EXPECT_EQ(sent(), "0:answer 1=0;1:answer 2=0 port=99;");
  name(MpiOp::kPublish, 2, 1, 3, {{"port", "1"}});
  EXPECT_EQ(sent(), "2:answer 1=2;");
  // Another rank's name is not ours to take back.
  name(MpiOp::kUnpublish, 2, 2, 3, {{"port", ""}});
  EXPECT_EQ(sent(), "2:answer 2=1;");
  EXPECT_EQ(exchange_.published(), 1U);
  name(MpiOp::kUnpublish, 0, 2, 0, {});
  EXPECT_EQ(sent(), "0:answer 2=0;");
  EXPECT_EQ(exchange_.published(), 0U);
}

TEST_F(MpiExchangeTest, NamesTakeBoundedRoom) {
  const std::string value(100 << 20, 'v');
  name(MpiOp::kPublish, 0, 1, 0, {{"a", value}, {"b", value}});
  name(MpiOp::kPublish, 0, 2, 0, {{"c", value}});
  EXPECT_EQ(sent(), "0:answer 1=0;0:answer 2=3;");
  name(MpiOp::kUnpublish, 0, 3, 0, {{"a", ""}});
  name(MpiOp::kPublish, 0, 4, 0, {{"c", value}});
  EXPECT_EQ(sent(), "0:answer 3=0;0:answer 4=0;");
}

// Of each kind, what has ended makes room for others.
TEST(MpiExchange, WhatIsAskedForTakesBoundedRoom) {
  std::int32_t status = 0;
  const auto keep = [&](std::uint32_t, const MpiMessage& message) { status = message.status; };
  MpiExchange exchange({0, 1}, keep, nullptr, 10'000);
  const auto ask_until_full = [&](MpiMessage message) {
    status = kMpiGood;
    for (message.id = 1; message.id < 1000; ++message.id) {
      exchange.handle(0, message);
      if (status == kMpiFull) break;
    }
    return message.id - 1;
  };
  exchange.handle(0, {.op = MpiOp::kPublish, .ranks = {0}, .entries = {{"a", "1"}, {"a", "2"}}});
  std::uint64_t last_fetch = 0;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t fetches = ask_until_full({.op = MpiOp::kFetch, .ranks = {1}});
    EXPECT_GT(fetches, 100U);
    EXPECT_LT(fetches, 200U);
    for (std::uint64_t i = 0; i < fetches; ++i) {
      exchange.handle(1, {.op = MpiOp::kAnswer, .id = ++last_fetch});
    }
    const std::uint64_t lookups =
        ask_until_full({.op = MpiOp::kLookup, .status = 1, .entries = {{"none", ""}}});
    EXPECT_GT(lookups, 50U);
    EXPECT_LT(lookups, 100U);
    for (std::uint64_t id = 1; id <= lookups; ++id) {
      exchange.handle(0, {.op = MpiOp::kForget, .id = id});
    }
    std::uint64_t names = 0;
    for (status = kMpiGood; names < 1000; ++names) {
      exchange.handle(0, {.op = MpiOp::kPublish,
                          .ranks = {0},
                          .entries = {{"name " + std::to_string(names), ""}}});
      if (status == kMpiFull) break;
    }
    EXPECT_GT(names, 100U);
    EXPECT_LT(names, 200U);
    exchange.handle(0, {.op = MpiOp::kUnpublish, .ranks = {0}});
  }
}

TEST_F(MpiExchangeTest, ALookupCanWaitForAllOfItsNames) {
  name(MpiOp::kLookup, 1, 5, 2, {{"a", ""}, {"b", ""}}, 1);
  name(MpiOp::kLookup, 2, 6, 3, {{"b", ""}}, 1);
  name(MpiOp::kPublish, 0, 1, 0, {{"a", "1"}});
  EXPECT_EQ(sent(), "0:answer 1=0;");
  exchange_.handle(2, {MpiOp::kForget, 6, 0, {}, {}, {}, {}});
  name(MpiOp::kPublish, 0, 2, 1, {{"b", "2"}});
  EXPECT_EQ(sent(), "0:answer 2=0;1:answer 5=0 a=1 b=2;");
}

TEST(MpiWireTest, MessagesComeThroughWhole) {
  MpiMessage message{MpiOp::kPublish, std::uint64_t{1} << 63, -3, "key",
                     {1, 2, 3},       {{"a", "b"}},           {}};
  message.data.assign(1000000, 'x');
  MpiPieces pieces;
  std::optional<MpiMessage> whole;
  int count = 0;
  send_in_pieces(message, [&](const std::string& body) {
    ASSERT_FALSE(whole);
    ++count;
    ASSERT_LE(body.size(), 300000U);
    whole = pieces.add(body);
  });
  ASSERT_TRUE(whole);
  EXPECT_GT(count, 3);
  EXPECT_EQ(encode_fields(*whole), encode_fields(message));
}

TEST(MpiWireTest, RefusesWhatIsCutOrTooLong) {
  const std::string bytes =
      encode_fields(MpiMessage{MpiOp::kGather, 1, 0, "k", {1}, {{"a", "b"}}, "data"});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW((void)decode_mpi(bytes.substr(0, size)), SystemError) << size;
  }
  EXPECT_THROW((void)decode_mpi(bytes + "x"), SystemError);
  std::string other = bytes;
  other[0] = 0;
  EXPECT_THROW((void)decode_mpi(other), SystemError);
  other[0] = 100;
  EXPECT_THROW((void)decode_mpi(other), SystemError);
  MpiPieces pieces;
  EXPECT_THROW((void)pieces.add(""), SystemError);
  EXPECT_THROW((void)pieces.add("\2x"), SystemError);
}

TEST(MpiWireTest, RefusesOrdersThatContradictThemselves) {
  const MpiOrder order{MpiMode::kAuto, "job", 1, {0, 1, 1}, {"a", "b"}};
  const MpiOrder read = decode_mpi_order(encode_fields(order));
  EXPECT_EQ(read.name, "job");
  EXPECT_EQ(read.ranks_of(1), (std::vector<std::uint32_t>{1, 2}));
  MpiOrder bad = order;
  bad.node = 2;
  EXPECT_THROW(check_mpi_order(decode_mpi_order(encode_fields(bad))), SystemError);
  bad = order;
  bad.node_of_rank = {0, 2};
  EXPECT_THROW(check_mpi_order(decode_mpi_order(encode_fields(bad))), SystemError);
  bad = order;
  bad.name.clear();
  EXPECT_THROW(check_mpi_order(decode_mpi_order(encode_fields(bad))), SystemError);
}

TEST(MpiWireTest, NodesGetNamesThatLibpmixCanCarry) {
  EXPECT_EQ(mpi_node_names({"n1.example.com", "fd00::5", "n1-example-com", "", "bob@n2"}),
            (std::vector<std::string>{"n1-example-com", "fd00--5", "n1-example-com-node2", "-node3",
                                      "bob-n2"}));
}

}  // namespace
}  // namespace chainmail::launch
