// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Receives from any rank: who sent, in which order, beside receives from one rank, and what happens
// when nobody sends.

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using test::GroupMaker;
using test::on;
using test::TransportKind;
using testing::ElementsAre;
using testing::HasSubstr;

// One node, one rank per node, and nodes with several ranks: each reaches others another way.
const std::vector<std::vector<int>> kShapes{{3}, {1, 1, 1}, {2, 1}, {2, 2}};

class GroupReceiveAny : public testing::TestWithParam<TransportKind> {
 protected:
  static GroupOptions limit(milliseconds timeout = std::chrono::seconds{20}) {
    GroupOptions options;
    options.timeout = timeout;
    return options;
  }

  static std::shared_ptr<Operation> begin(Group& group, OpKind kind, std::vector<float>& values,
                                          int peer, std::uint32_t tag) {
    Collective collective = on(values, kind);
    collective.root = peer;
    collective.tag = tag;
    return group.submit(std::move(collective));
  }
  static std::shared_ptr<Operation> send(Group& group, std::vector<float>& values, int to,
                                         std::uint32_t tag = 0) {
    return begin(group, OpKind::kSend, values, to, tag);
  }
  static std::shared_ptr<Operation> receive(Group& group, std::vector<float>& values, int from,
                                            std::uint32_t tag = 0) {
    return begin(group, OpKind::kRecv, values, from, tag);
  }
};

TEST_P(GroupReceiveAny, TellsWhoHasSent) {
  for (const auto& nodes : kShapes) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{300'000}}) {
      GroupMaker maker(nodes, GetParam(), limit());
      maker.run_ok([&](int rank, Group& group) {
        std::vector<float> values(count, static_cast<float>(rank));
        if (rank != 0) {
          send(group, values, 0, 3)->wait();
          return;
        }
        std::set<int> senders;
        for (int i = 1; i < group.size(); ++i) {
          const auto operation = receive(group, values, kAnyRank, 3);
          EXPECT_EQ(operation->source_rank() >= 0, operation->is_done());
          operation->wait();
          const int sender = operation->source_rank();
          ASSERT_TRUE(sender > 0 && sender < group.size()) << sender;
          ASSERT_TRUE(senders.insert(sender).second) << sender;
          ASSERT_EQ(values, std::vector<float>(count, static_cast<float>(sender)));
        }
      });
    }
  }
}

TEST_P(GroupReceiveAny, TheSenderMayComeLater) {
  for (const auto& nodes : kShapes) {
    GroupMaker maker(nodes, GetParam(), limit());
    maker.run_ok([](int rank, Group& group) {
      std::vector<float> values(5, static_cast<float>(rank));
      if (rank == 0) {
        const auto operation = receive(group, values, kAnyRank);
        operation->wait();
        EXPECT_EQ(operation->source_rank(), group.size() - 1);
        EXPECT_EQ(values[4], static_cast<float>(group.size() - 1));
      } else if (rank == group.size() - 1) {
        // The others have long left, those of rank 0's node among them.
        std::this_thread::sleep_for(milliseconds{250});
        send(group, values, 0)->wait();
      }
    });
  }
}

TEST_P(GroupReceiveAny, TagsAndReceivesFromOneRankKeepTheirMessages) {
  for (const auto& nodes : kShapes) {
    for (const std::size_t count : {std::size_t{4}, std::size_t{100'000}}) {
      GroupMaker maker(nodes, GetParam(), limit());
      maker.run_ok([&](int rank, Group& group) {
        if (rank != 0) {
          // Per sender: the first with tag 1 is for the receive from that rank.
          for (const std::uint32_t tag : {1U, 1U, 2U}) {
            std::vector<float> values(count,
                                      static_cast<float>(10 * rank) + static_cast<float>(tag));
            send(group, values, 0, tag)->wait();
          }
          return;
        }
        const auto peers = static_cast<std::size_t>(group.size() - 1);
        std::vector<std::vector<float>> buffers(3 * peers, std::vector<float>(count));
        std::vector<std::shared_ptr<Operation>> operations;
        for (std::size_t i = 0; i < peers; ++i) {
          operations.push_back(receive(group, buffers[i], static_cast<int>(i) + 1, 1));
        }
        for (std::size_t i = 0; i < peers; ++i) {
          operations.push_back(receive(group, buffers[peers + i], kAnyRank, 2));
        }
        for (std::size_t i = 0; i < peers; ++i) {
          operations.push_back(receive(group, buffers[2 * peers + i], kAnyRank, 1));
        }
        for (std::size_t i = 0; i < operations.size(); ++i) {
          operations[i]->wait();
          const float tag = i / peers == 1 ? 2 : 1;
          const auto sender = static_cast<float>(operations[i]->source_rank());
          ASSERT_EQ(buffers[i], std::vector<float>(count, 10 * sender + tag)) << "receive " << i;
        }
      });
    }
  }
}

TEST_P(GroupReceiveAny, MessagesOfOneSenderComeInItsOrder) {
  for (const auto& nodes : kShapes) {
    GroupMaker maker(nodes, GetParam(), limit());
    maker.run_ok([](int rank, Group& group) {
      constexpr int kMessages = 60;
      if (rank != 0) {
        std::vector<std::vector<float>> values(kMessages);
        std::vector<std::shared_ptr<Operation>> operations;
        for (std::size_t i = 0; i < kMessages; ++i) {
          values[i].assign(i % 7 == 0 ? 70'000 : 2, static_cast<float>(i));
          operations.push_back(send(group, values[i], 0, i % 7 == 0 ? 1 : 0));
        }
        for (const auto& operation : operations) operation->wait();
        return;
      }
      for (const std::uint32_t tag : {0U, 1U}) {
        std::vector<float> last(static_cast<std::size_t>(group.size()), -1);
        const int per_sender = tag == 1 ? (kMessages + 6) / 7 : kMessages - (kMessages + 6) / 7;
        for (int i = 0; i < per_sender * (group.size() - 1); ++i) {
          std::vector<float> got(tag == 1 ? 70'000 : 2);
          const auto operation = receive(group, got, kAnyRank, tag);
          operation->wait();
          float& before = last[static_cast<std::size_t>(operation->source_rank())];
          ASSERT_GT(got.back(), before);
          before = got.back();
        }
      }
    });
  }
}

TEST_P(GroupReceiveAny, ATimeLimitNamesAllThatCouldHaveSent) {
  for (const auto& nodes : {std::vector<int>{3}, std::vector<int>{2, 1}}) {
    GroupMaker maker(nodes, GetParam(), limit(milliseconds{500}));
    std::atomic<bool> is_over{false};
    const auto errors = maker.run([&](int rank, Group& group) {
      std::vector<float> values(5);
      if (rank != 0) {
        is_over.wait(false);
        return;
      }
      const Stopwatch watch;
      try {
        receive(group, values, kAnyRank, 4)->wait();
      } catch (...) {
        EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{3}));
        is_over = true;
        is_over.notify_all();
        throw;
      }
      ADD_FAILURE() << "nobody has sent";
    });
    ASSERT_TRUE(test::is<TimeoutError>(errors[0])) << test::text_of(errors[0]);
    try {
      std::rethrow_exception(errors[0]);
    } catch (const TimeoutError& e) {
      EXPECT_THAT(e.missing_ranks(), ElementsAre(1, 2));
      EXPECT_THAT(e.what(), HasSubstr("recv #0 on rank 0 (node1): Timed out waiting: nothing of it "
                                      "has moved for 500 ms; "));
      EXPECT_THAT(e.what(), HasSubstr("no message with tag 4 has come from rank 1 (node"));
    }
  }
}

TEST_P(GroupReceiveAny, AMessageOfAnotherSizeIsAMismatch) {
  GroupMaker maker({2}, GetParam(), limit());
  const auto errors = maker.run([](int rank, Group& group) {
    std::vector<float> values(rank == 0 ? 5 : 6);
    rank == 0 ? receive(group, values, kAnyRank)->wait() : send(group, values, 0)->wait();
    std::vector<float> more(3);
    receive(group, more, 1 - rank)->wait();
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<MismatchError>(error)) << test::text_of(error);
  }
}

TEST_P(GroupReceiveAny, EndsWhenAllThatCouldSendHaveLeft) {
  GroupMaker maker({3}, GetParam(), limit());
  const Stopwatch watch;
  const auto errors = maker.run([](int rank, Group& group) {
    std::vector<float> values(5);
    if (rank != 0) {
      send(group, values, 0)->wait();
      return;
    }
    for (int i = 0; i < 3; ++i) receive(group, values, kAnyRank)->wait();
  });
  EXPECT_TRUE(test::is<PeerError>(errors[0])) << test::text_of(errors[0]);
  EXPECT_THAT(test::text_of(errors[0]), HasSubstr("recv #2"));
  EXPECT_THAT(test::text_of(errors[0]), HasSubstr("left the group: rank 1 on host node1, rank 2"));
  try {
    std::rethrow_exception(errors[0]);
  } catch (const PeerError& e) {
    EXPECT_EQ(e.peer_rank(), -1) << "none of them is to blame more than the others";
  }
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{3}));
}

TEST_P(GroupReceiveAny, FailureAndShutdownEndIt) {
  for (const auto& nodes : kShapes) {
    GroupMaker maker(nodes, GetParam(), limit());
    const auto errors = maker.run([](int rank, Group& group) {
      std::vector<float> values(5);
      const auto operation = receive(group, values, kAnyRank);
      if (rank == 1) {
        std::this_thread::sleep_for(milliseconds{50});
        group.abort(std::make_exception_ptr(PeerError("rank 1 gives up", 1)));
      }
      operation->wait();
    });
    for (const auto& error : errors) {
      EXPECT_THAT(test::text_of(error), HasSubstr("rank 1 gives up"));
    }
  }
}

TEST_P(GroupReceiveAny, NobodyElseIsNoSender) {
  GroupMaker maker({1}, GetParam(), limit());
  const auto errors = maker.run([](int, Group& group) {
    std::vector<float> values(5);
    receive(group, values, kAnyRank)->wait();
  });
  EXPECT_TRUE(test::is<InvalidArgument>(errors[0])) << test::text_of(errors[0]);
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupReceiveAny,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere, TransportKind::kEncrypted,
                                         TransportKind::kMpi),
                         [](const auto& each) { return test::to_string(each.param); });

}  // namespace
}  // namespace chainmail::ops
