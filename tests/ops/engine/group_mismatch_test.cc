// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that disagree get a MismatchError on every rank within a second, and it names both sides.

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/core/liveness.h"
#include "ops/engine/comms/transport_check.h"
#include "tests/ops/support/groups.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using test::bytes_of;
using test::GroupMaker;
using test::on;
using test::TransportKind;

using Call = std::function<void(Group&)>;

/// The odd rank's call, and what the message must say about both sides.
struct Case {
  std::string name;
  Call usual;
  Call odd;
  std::string usual_text;
  std::string odd_text;
};

std::vector<float>& values_of(std::size_t count) {
  thread_local std::vector<float> values;
  values.assign(count, 1.0F);
  return values;
}

Collective shaped(std::size_t count, std::uint32_t hash, const std::string& shape) {
  Collective collective = on(values_of(count));
  collective.shape_hash = hash;
  collective.describe_shapes = [shape] { return shape; };
  return collective;
}

/// The usual tensor in another operation, whose root is `distance` ranks after this one.
Call rooted(OpKind kind, int distance) {
  return [kind, distance](Group& group) {
    Collective collective = shaped(12, 34, "[3, 4]");
    collective.kind = kind;
    collective.root = (group.rank() + distance) % group.size();
    group.run(collective);
  };
}

std::vector<Case> cases() {
  const Call usual = [](Group& group) { group.run(shaped(12, 34, "[3, 4]")); };
  const std::string usual_text = "calls all_reduce sum of float32 [3, 4]";
  return {
      {"shape", usual, [](Group& group) { group.run(shaped(12, 43, "[4, 3]")); }, usual_text,
       "calls all_reduce sum of float32 [4, 3]"},
      {"count", usual, [](Group& group) { group.run(shaped(15, 34, "[3, 5]")); }, usual_text,
       "calls all_reduce sum of float32 [3, 5]"},
      {"dtype", usual,
       [](Group& group) {
         Collective collective = shaped(12, 34, "[3, 4]");
         collective.dtype = DataType::kInt32;  // as many bytes
         group.run(collective);
       },
       usual_text, "calls all_reduce sum of int32 [3, 4]"},
      {"reduction", usual,
       [](Group& group) {
         Collective collective = shaped(12, 34, "[3, 4]");
         collective.reduce_op = ReduceOp::kMax;
         group.run(collective);
       },
       usual_text, "calls all_reduce max of float32 [3, 4]"},
      {"kind", usual, rooted(OpKind::kBroadcast, 1), usual_text,
       "calls broadcast of float32 [3, 4] with root"},
      {"kind_as_root", usual, rooted(OpKind::kBroadcast, 0), usual_text,
       "calls broadcast of float32 [3, 4] with root"},
      {"kind_that_only_sends", usual, rooted(OpKind::kGather, 1), usual_text,
       "calls gather of float32 [3, 4] with root"},
      {"kind_over_other_connections", usual,
       [](Group& group) {
         std::vector<float> output(12 * static_cast<std::size_t>(group.size()));
         Collective collective = shaped(12, 34, "[3, 4]");
         collective.kind = OpKind::kAllGather;
         collective.output = bytes_of(output);
         group.run(collective);
       },
       usual_text, "calls all_gather of float32 [3, 4]"},
      {"algorithm", usual,
       [](Group& group) {
         Collective collective = shaped(12, 34, "[3, 4]");
         collective.algorithm = Algorithm::kTwoDimensional;
         group.run(collective);
       },
       usual_text, "calls all_reduce sum of float32 [3, 4] (two_dimensional)"},
      {"order",
       [](Group& group) {
         group.run(shaped(12, 34, "[3, 4]"));
         group.run(shaped(6, 6, "[6]"));
       },
       [](Group& group) {
         group.run(shaped(6, 6, "[6]"));
         group.run(shaped(12, 34, "[3, 4]"));
       },
       usual_text, "calls all_reduce sum of float32 [6]"},
  };
}

/// What has lost how much of what to an integer wire.
struct IntegerWire {
  WireFormat wire = WireFormat::kInt8;
  bool has_feedback = true;
  std::uint64_t exchanges = 7;
  std::size_t compressed_count = 10;
};

Call on_wire(const IntegerWire& how) {
  return [how](Group& group) {
    std::vector<float> residuals(24);
    Collective collective = shaped(12, 34, "[3, 4]");
    collective.wire = how.wire;
    collective.compressed_count = how.compressed_count;
    if (how.has_feedback) {
      std::byte* const first = bytes_of(residuals);
      collective.feedback = WireFeedback{first, first + 12 * sizeof(float), how.exchanges};
    }
    group.run(collective);
  };
}

std::vector<Case> integer_wires() {
  const Call usual = on_wire({});
  const std::string text = "calls all_reduce sum of float32 [3, 4] (";
  const std::string usual_text = text +
                                 "int8 between nodes, the first 10 elements in blocks of 256, with "
                                 "feedback of 7 exchanges)";
  return {
      {"format", usual, on_wire({.wire = WireFormat::kInt4}), usual_text,
       text + "int4 between nodes, the first 10 elements in blocks of 64, with feedback of 7"},
      {"halves", usual, on_wire({.wire = WireFormat::kFloat16, .has_feedback = false}), usual_text,
       text + "float16 between nodes, the first 10 elements)"},
      {"feedback", usual, on_wire({.has_feedback = false}), usual_text,
       text + "int8 between nodes, the first 10 elements in blocks of 256, without feedback)"},
      {"age", usual, on_wire({.exchanges = 8}), usual_text,
       text + "int8 between nodes, the first 10 elements in blocks of 256, with feedback of 8"},
      {"compressed_count", usual, on_wire({.compressed_count = 9}), usual_text,
       text + "int8 between nodes, the first 9 elements in blocks of 256, with feedback of 7"},
  };
}

class GroupMismatch : public testing::TestWithParam<TransportKind> {
 protected:
  static void check(const std::vector<int>& nodes, int odd_rank, const Case& what,
                    int good_calls_before) {
    SCOPED_TRACE(what.name + " on " + Topology::from_node_sizes(nodes).describe() + ", odd rank " +
                 std::to_string(odd_rank));
    GroupOptions options;
    options.timeout = std::chrono::seconds{20};
    GroupMaker maker(nodes, GetParam(), options);
    std::vector<std::chrono::milliseconds> took(static_cast<std::size_t>(maker.size()));
    const auto errors = maker.run([&](int rank, Group& group) {
      for (int i = 0; i < good_calls_before; ++i) {
        std::vector<float> values(3, 1.0F);
        group.run(on(values));
      }
      const auto start = std::chrono::steady_clock::now();
      const auto stop = [&] {
        took[static_cast<std::size_t>(rank)] =
            std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
      };
      try {
        (rank == odd_rank ? what.odd : what.usual)(group);
      } catch (...) {
        stop();
        throw;
      }
      stop();
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_TRUE(test::is<MismatchError>(errors[rank]))
          << "rank " << rank << ": " << test::text_of(errors[rank]);
      EXPECT_LT(took[rank], patient(std::chrono::seconds{3}))
          << "rank " << rank << "; a tenth of it when idle";
      const std::string text = test::text_of(errors[rank]);
      EXPECT_NE(text.find(what.usual_text), std::string::npos) << text;
      EXPECT_NE(text.find(what.odd_text), std::string::npos) << text;
      const int node = Topology::from_node_sizes(nodes).node_of(odd_rank);
      EXPECT_NE(text.find("rank " + std::to_string(odd_rank) + " (node" + std::to_string(node + 1) +
                          ") " + what.odd_text),
                std::string::npos)
          << text;
    }
  }
};

TEST_P(GroupMismatch, OnOneNode) {
  for (const Case& what : cases()) {
    if (what.name == "algorithm") {
      continue;  // one node has one way
    }
    check({2}, 1, what, 0);
    check({3}, 0, what, 2);
    check({4}, 2, what, 1);
  }
}

TEST_P(GroupMismatch, OverTwoNodes) {
  for (const Case& what : cases()) {
    check({1, 1}, 1, what, 0);
    check({2, 2}, 3, what, 1);
    check({3, 1}, 3, what, 0);
  }
}

TEST_P(GroupMismatch, OfIntegerWires) {
  for (const Case& what : integer_wires()) {
    check({1, 1}, 1, what, 0);
    check({2, 1, 1}, 2, what, 1);
  }
}

TEST_P(GroupMismatch, SendAndReceiveOfOtherSizes) {
  GroupOptions options;
  options.timeout = std::chrono::seconds{20};
  GroupMaker maker({1, 2}, GetParam(), options);
  const auto errors = test::run_ranks(maker.size(), [&](int rank) {
    if (rank == 1) {
      return;  // the first of its node never comes, and the other one has a name all the same
    }
    const auto group = maker.join(rank);
    std::vector<float> values(rank == 0 ? 12 : 6);
    Collective collective = on(values, rank == 0 ? OpKind::kSend : OpKind::kRecv);
    collective.root = 2 - rank;
    group->run(collective);
    // A small send is over before the receiver has looked at it: the sender finds out next.
    collective.kind = rank == 0 ? OpKind::kRecv : OpKind::kSend;
    group->run(collective);
  });
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    const std::string text = test::text_of(errors[rank]);
    EXPECT_TRUE(test::is<MismatchError>(errors[rank])) << text;
    // Of a send that is over only its bytes are known.
    const bool is_over = text.find("rank 0 (node1) calls send of 48 bytes") != std::string::npos;
    EXPECT_THAT(text, testing::HasSubstr("a send and the receive that it meets must have"));
    const bool is_running =
        text.find("rank 0 (node1) calls send of float32 [12] to rank 2 with tag 0 (48 bytes)") !=
        std::string::npos;
    EXPECT_TRUE(is_over || is_running) << text;
    EXPECT_NE(text.find("rank 2 (node2) calls recv of float32 [6] from rank 0 with tag 0 (24 "
                        "bytes)"),
              std::string::npos)
        << text;
  }
}

TEST_P(GroupMismatch, EveryLaterCallGetsTheFirstError) {
  GroupMaker maker({2}, GetParam());
  const auto errors = maker.run([](int rank, Group& group) {
    std::vector<float> values(rank == 0 ? 4 : 5);
    const auto doomed = group.submit(on(values));
    std::vector<float> more(3);
    std::string first;
    try {
      doomed->wait();
    } catch (const MismatchError& e) {
      first = e.what();
    }
    ASSERT_NE(first, "");
    for (int i = 0; i < 2; ++i) {
      try {
        group.run(on(more));
        FAIL() << "a dead group ran an operation";
      } catch (const MismatchError& e) {
        EXPECT_EQ(e.what(), first);
      }
    }
    EXPECT_EQ(test::text_of(group.error()), first);
  });
  EXPECT_EQ(test::text_of(errors[0]), "");
  EXPECT_EQ(test::text_of(errors[1]), "");
}

// They would wait for each other in different places.
TEST(TransportMismatch, OnANodeEndsWhateverIsTheFirstMeeting) {
  for (const OpKind kind : {OpKind::kBarrier, OpKind::kAllReduce, OpKind::kRecv}) {
    for (const int odd_rank : {0, 1}) {
      SCOPED_TRACE(std::string(to_string(kind)) + ", odd rank " + std::to_string(odd_rank));
      const auto rendezvous = std::make_shared<LocalRendezvous>();
      const auto errors = test::run_ranks(2, [&](int rank) {
        GroupOptions options;
        options.secret = std::string(32, 's');
        options.host = "n1";
        options.use_shared_memory = rank != odd_rank;
        const auto group =
            create_group(rank, Topology::single_node(2), rendezvous, options, {40, 41});
        std::vector<float> values(3);
        Collective collective = on(values, kind);
        collective.root = 1 - rank;
        group->run(collective);
      });
      for (const auto& error : errors) {
        EXPECT_TRUE(test::is<MismatchError>(error));
        const std::string text = test::text_of(error);
        for (const std::string& part :
             {"rank " + std::to_string(40 + odd_rank) + " on host n1 has ",
              "rank " + std::to_string(41 - odd_rank) + " on host n1 has ", std::string("\"shm\""),
              std::string("\"tcp\""), std::string("set CHAINMAIL_LOCAL alike on all ranks")}) {
          EXPECT_THAT(text, testing::HasSubstr(part));
        }
      }
    }
  }
}

TEST(TransportMismatch, IsFoundByWhoMissesARankOnly) {
  const auto board = std::make_shared<LocalRendezvous>();
  const Topology topology = Topology::from_node_sizes(std::array{1, 2});
  const auto join = [&](int rank, CrossTransport cross, bool use_shared_memory) {
    GroupOptions options;
    options.host = "n" + std::to_string(topology.node_of(rank) + 1);
    options.cross = cross;
    options.use_shared_memory = use_shared_memory;
    return with_transport_check(board, rank, topology, options, {0, 1, 2});
  };
  const auto first = join(0, CrossTransport::kTcp, true);
  auto& liveness = dynamic_cast<RankLiveness&>(*first);
  EXPECT_FALSE(liveness.end_of(1)) << "it may still come";
  const auto second = join(1, CrossTransport::kTcp, false);
  EXPECT_FALSE(liveness.end_of(1)) << "it is on another node";
  const auto third = join(2, CrossTransport::kMpi, true);
  try {
    static_cast<void>(liveness.end_of(2));
    FAIL() << "they cannot meet";
  } catch (const MismatchError& error) {
    EXPECT_THAT(
        error.what(),
        testing::HasSubstr("rank 2 on host n2 has transport between nodes \"mpi\", rank 0 on "
                           "host n1 has \"tcp\""));
    EXPECT_THAT(error.what(), testing::HasSubstr("CHAINMAIL_CROSS"));
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupMismatch,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere, TransportKind::kEncrypted,
                                         TransportKind::kMpi),
                         [](const auto& of) { return test::to_string(of.param); });

}  // namespace
}  // namespace chainmail::ops
