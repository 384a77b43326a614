// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends and receives: none waits for another, and what fails ends all.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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

class GroupTransfers : public testing::TestWithParam<TransportKind> {
 protected:
  static GroupOptions limits() {
    GroupOptions options;
    options.timeout = std::chrono::seconds{20};
    return options;
  }

  static std::shared_ptr<Operation> send(Group& group, std::vector<float>& values, int to,
                                         std::uint32_t tag = 0) {
    Collective collective = on(values, OpKind::kSend);
    collective.root = to;
    collective.tag = tag;
    return group.submit(std::move(collective));
  }

  static std::shared_ptr<Operation> receive(Group& group, std::vector<float>& values, int from,
                                            std::uint32_t tag = 0) {
    Collective collective = on(values, OpKind::kRecv);
    collective.root = from;
    collective.tag = tag;
    return group.submit(std::move(collective));
  }
};

TEST_P(GroupTransfers, TwoRanksReceiveFirstAndThenSend) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{2} << 20}) {
      GroupMaker maker(nodes, GetParam(), limits());
      maker.run_ok([&](int rank, Group& group) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> mine(count, static_cast<float>(10 * round + rank));
          std::vector<float> theirs(count, -1);
          const auto in = receive(group, theirs, 1 - rank);
          const auto out = send(group, mine, 1 - rank);
          in->wait();
          out->wait();
          ASSERT_EQ(theirs, std::vector<float>(count, static_cast<float>(10 * round + 1 - rank)));
        }
      });
    }
  }
}

TEST_P(GroupTransfers, AllRanksOfARingSendFirst) {
  for (const auto& nodes : {std::vector<int>{3}, std::vector<int>{4}, std::vector<int>{1, 1, 1},
                            std::vector<int>{2, 2}}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{300'000}}) {
      GroupMaker maker(nodes, GetParam(), limits());
      maker.run_ok([&](int rank, Group& group) {
        const int left = (rank + group.size() - 1) % group.size();
        for (int round = 0; round < 3; ++round) {
          std::vector<float> mine(count, static_cast<float>(10 * round + rank));
          std::vector<float> theirs(count, -1);
          const auto out = send(group, mine, (rank + 1) % group.size());
          const auto in = receive(group, theirs, left);
          out->wait();
          in->wait();
          ASSERT_EQ(theirs, std::vector<float>(count, static_cast<float>(10 * round + left)));
        }
      });
    }
  }
}

TEST_P(GroupTransfers, TheLongestLimitsAreNoneAtAll) {
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<float> values(3, static_cast<float>(rank));
    for (const int from : {1, kAnyRank}) {
      if (rank == 1) {
        std::this_thread::sleep_for(milliseconds{50});
        send(group, values, 0)->wait(milliseconds::max());
        continue;
      }
      Collective collective = on(values, OpKind::kRecv);
      collective.root = from;
      collective.timeout = milliseconds::max();
      group.submit(std::move(collective))->wait(milliseconds::max());
    }
  });
}

TEST_P(GroupTransfers, AReasonToAbortIsToldToThoseWhoReceive) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limits());
    const auto errors = test::run_ranks(2, [&](int rank) {
      std::shared_ptr<Group> group = maker.join(rank);
      std::vector<float> mine(3);
      std::vector<float> theirs(3);
      const auto out = send(*group, mine, 1 - rank);
      receive(*group, theirs, 1 - rank)->wait();
      out->wait();
      const auto never = receive(*group, theirs, 1 - rank, 1);
      if (rank == 0) {
        std::this_thread::sleep_for(milliseconds{50});  // the group's thread sleeps by then
        group->abort(std::make_exception_ptr(PeerError("this is why", 17)));
        group.reset();
      }
      never->wait();
    });
    for (const auto& error : errors) {
      EXPECT_TRUE(test::is<PeerError>(error)) << test::text_of(error);
      EXPECT_NE(test::text_of(error).find("this is why"), std::string::npos)
          << test::text_of(error);
    }
  }
}

TEST_P(GroupTransfers, ATransferAndACollectiveComeInEitherOrder) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limits());
    maker.run_ok([](int rank, Group& group) {
      for (int round = 0; round < 3; ++round) {
        std::vector<float> moved(100'000, rank == 1 ? 7.0F : 0.0F);
        std::vector<float> ones(1000, 1);
        if (rank == 0) {
          const auto in = receive(group, moved, 1);
          group.run(on(ones));
          in->wait();
        } else {
          group.run(on(ones));
          send(group, moved, 0)->wait();
        }
        ASSERT_EQ(moved, std::vector<float>(moved.size(), 7.0F));
        ASSERT_EQ(ones, std::vector<float>(ones.size(), 2.0F));
      }
      ASSERT_EQ(group.sequence(), 3U);
    });
  }
}

TEST_P(GroupTransfers, TransfersBetweenTwoRanksArriveInOrder) {
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<std::vector<float>> values(40);
    std::vector<std::shared_ptr<Operation>> operations;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].assign(i % 4 == 0 ? 50'000 : 3, rank == 0 ? static_cast<float>(i) : -1.0F);
      const auto tag = static_cast<std::uint32_t>(i % 3);
      operations.push_back(rank == 0 ? send(group, values[i], 1, tag)
                                     : receive(group, values[i], 0, tag));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      operations[i]->wait();
      ASSERT_EQ(values[i].back(), static_cast<float>(i));
    }
  });
}

TEST_P(GroupTransfers, TagsMeetInAnyOrder) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{200'000}}) {
    for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
      GroupMaker maker(nodes, GetParam(), limits());
      maker.run_ok([&](int rank, Group& group) {
        constexpr std::uint32_t kTags = 8;
        std::vector<std::vector<float>> values(kTags);
        std::vector<std::shared_ptr<Operation>> operations;
        for (std::uint32_t i = 0; i < kTags; ++i) {
          const std::uint32_t tag = rank == 0 ? i : kTags - 1 - i;
          values[tag].assign(count, rank == 0 ? static_cast<float>(tag) : -1.0F);
          operations.push_back(rank == 0 ? send(group, values[tag], 1, tag)
                                         : receive(group, values[tag], 0, tag));
          if (rank == 1) operations.back()->wait();  // the last tag first, alone
        }
        for (std::uint32_t tag = 0; tag < kTags; ++tag) operations[tag]->wait();
        for (std::uint32_t tag = 0; tag < kTags; ++tag) {
          ASSERT_EQ(values[tag], std::vector<float>(count, static_cast<float>(tag)));
        }
      });
    }
  }
}

TEST_P(GroupTransfers, MoreThanMayComeUnaskedStillArrives) {
  // 60 MB of messages that are each sent without asking, the one that is waited for at the end.
  constexpr std::size_t kMessages = 300;
  constexpr std::size_t kCount = 50'000;
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<float> last(1, rank == 0 ? 7.0F : 0.0F);
    std::vector<std::vector<float>> values(kMessages);
    std::vector<std::shared_ptr<Operation>> operations;
    if (rank == 1) receive(group, last, 0, 2)->wait();
    for (std::size_t i = 0; i < kMessages; ++i) {
      values[i].assign(kCount, rank == 0 ? static_cast<float>(i) : -1.0F);
      operations.push_back(rank == 0 ? send(group, values[i], 1, 1)
                                     : receive(group, values[i], 0, 1));
    }
    if (rank == 0) send(group, last, 1, 2)->wait();
    for (std::size_t i = 0; i < kMessages; ++i) {
      operations[i]->wait();
      ASSERT_EQ(values[i].front(), static_cast<float>(i));
      ASSERT_EQ(values[i].back(), static_cast<float>(i));
    }
    ASSERT_EQ(last[0], 7.0F);
  });
}

TEST_P(GroupTransfers, SeveralThreadsSendAndReceiveAtOnce) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limits());
    maker.run_ok([](int rank, Group& group) {
      constexpr std::uint32_t kThreads = 4;
      test::run_ranks_ok(kThreads, [&](int thread) {
        const auto tag = static_cast<std::uint32_t>(thread);
        for (int round = 0; round < 50; ++round) {
          std::vector<float> mine(1000, static_cast<float>(1000 * thread + 10 * round + rank));
          std::vector<float> theirs(1000, -1);
          const auto out = send(group, mine, 1 - rank, tag);
          const auto in = receive(group, theirs, 1 - rank, tag);
          in->wait();
          out->wait();
          ASSERT_EQ(theirs[0], static_cast<float>(1000 * thread + 10 * round + 1 - rank));
        }
      });
    });
  }
}

TEST_P(GroupTransfers, WhatNobodyWaitsForMovesAllTheSame) {
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{500'000}}) {
      std::vector<float> mine(count, static_cast<float>(rank));
      std::vector<float> theirs(count, -1);
      const auto in = receive(group, theirs, 1 - rank);
      const auto out = send(group, mine, 1 - rank);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
      while (!(in->is_done() && out->is_done()) && std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(milliseconds{1});
      }
      ASSERT_TRUE(in->is_done() && out->is_done());
      ASSERT_EQ(theirs.back(), static_cast<float>(1 - rank));
    }
  });
}

TEST_P(GroupTransfers, ACallbackMaySubmitAndWait) {
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<float> first(3, static_cast<float>(rank));
    std::vector<float> second(3, -1);
    std::atomic<bool> is_told{false};
    const auto run = [&] {
      // Rank 1 answers from within the callback of what it has received.
      std::vector<float> answer(3, 5);
      rank == 1 ? send(group, answer, 0, 9)->wait() : receive(group, second, 1, 9)->wait();
      is_told = true;
    };
    const auto operation = rank == 0 ? send(group, first, 1) : receive(group, first, 0);
    operation->on_done(run);
    operation->wait();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!is_told && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds{1});
    }
    ASSERT_TRUE(is_told);
    if (rank == 0) {
      ASSERT_EQ(second, std::vector<float>(3, 5));
    }
  });
}

/// On two ranks of one node and of two, with a time limit that is no help.
void expect_end_within(std::chrono::seconds most, TransportKind transport,
                       const std::function<void(int rank, Group& group)>& body) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupOptions options;
    options.timeout = std::chrono::minutes{10};
    GroupMaker maker(nodes, transport, options);
    const Stopwatch watch;
    maker.run_ok(body);
    EXPECT_LT(watch.elapsed(), patient(most));
  }
}

TEST_P(GroupTransfers, ShutdownDoesNotWaitForWhatNobodySends) {
  expect_end_within(std::chrono::minutes{1}, GetParam(), [](int rank, Group& group) {
    std::vector<float> here(4, static_cast<float>(rank));
    std::vector<float> there(4);
    const auto in = receive(group, there, 1 - rank);
    const auto out = send(group, here, 1 - rank);
    in->wait();
    out->wait();
    const auto unmatched = receive(group, there, 1 - rank, 5);
    Collective any = on(there, OpKind::kRecv);
    any.root = kAnyRank;
    any.tag = 6;
    const auto from_any = group.submit(std::move(any));
    group.shutdown();
    for (const auto& operation : {unmatched, from_any}) {
      ASSERT_TRUE(operation->is_done());
      // Or the peer was first to leave.
      ASSERT_TRUE(test::is<InvalidArgument>(operation->error()) ||
                  test::is<PeerError>(operation->error()));
    }
  });
}

TEST_P(GroupTransfers, ShutdownEndsWhatAnotherThreadWaitsFor) {
  expect_end_within(std::chrono::seconds{8}, GetParam(), [](int rank, Group& group) {
    std::vector<float> there(4);
    const auto unmatched = receive(group, there, 1 - rank, 5);
    std::thread waiter([&] { EXPECT_THROW(unmatched->wait(), Error); });
    std::this_thread::sleep_for(milliseconds{50});  // it sleeps in the transport by now
    group.shutdown();
    waiter.join();
  });
}

TEST_P(GroupTransfers, ShutdownWaitsForSendsAndForWhatIsComing) {
  constexpr std::size_t kMany = std::size_t{4} << 20;
  GroupMaker maker({1, 1}, GetParam(), limits());
  std::vector<float> there(kMany);
  std::shared_ptr<Operation> in;
  maker.run_ok([&](int rank, Group& group) {
    std::vector<float> here(kMany, 3);
    if (rank == 0) {
      const auto out = send(group, here, 1);
      group.shutdown();
      ASSERT_EQ(out->error(), nullptr);
      ASSERT_TRUE(out->is_done());
      return;
    }
    std::this_thread::sleep_for(milliseconds{200});  // the sender waits by now
    in = receive(group, there, 0);
    in->wait();
  });
  EXPECT_EQ(there.back(), 3);
}

TEST_P(GroupTransfers, CallbacksDoNotRunInAThreadThatMovesOtherTransfers) {
  GroupMaker maker({2}, GetParam(), limits());
  std::promise<void> has_callback;
  maker.run_ok([&has_callback](int rank, Group& group) {
    std::vector<float> first(3);
    std::vector<float> second(3);
    if (rank == 0) {
      // One that comes too late runs in the one who gives it.
      EXPECT_EQ(has_callback.get_future().wait_for(std::chrono::seconds{10}),
                std::future_status::ready);
      send(group, first, 1, 1)->wait();
      send(group, second, 1, 2)->wait();
      return;
    }
    std::mutex lock;
    std::atomic<bool> has_run{false};
    {
      const std::lock_guard held(lock);
      const auto one = receive(group, first, 0, 1);
      one->on_done([&] {
        const std::lock_guard taken(lock);
        has_run = true;
      });
      has_callback.set_value();
      receive(group, second, 0, 2)->wait();
      one->wait();
      EXPECT_FALSE(has_run);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!has_run && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds{1});
    }
    ASSERT_TRUE(has_run);
  });
}

TEST_P(GroupTransfers, FailureEndsEveryLane) {
  GroupMaker maker({2, 1}, GetParam(), limits());
  const Stopwatch watch;
  const auto errors = maker.run([](int rank, Group& group) {
    std::vector<float> a(4);
    std::vector<float> b(4);
    std::vector<float> c(4);
    const auto first = receive(group, a, (rank + 1) % 3);
    const auto second = receive(group, b, (rank + 2) % 3);
    const auto third = rank == 2 ? nullptr : group.submit(on(c));
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds{50});
      group.abort(std::make_exception_ptr(PeerError("rank 2 gives up")));
    }
    EXPECT_THROW(first->wait(), PeerError);
    EXPECT_THROW(second->wait(), PeerError);
    EXPECT_THROW(receive(group, a, (rank + 1) % 3), PeerError);
    if (third != nullptr) third->wait();
  });
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
    EXPECT_NE(test::text_of(errors[rank]).find("rank 2 gives up"), std::string::npos)
        << test::text_of(errors[rank]);
  }
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{10}));
}

TEST_P(GroupTransfers, ATimeLimitNamesTheOperationThatHadIt) {
  GroupMaker maker({2}, GetParam(), limits());
  const auto errors = maker.run([](int rank, Group& group) {
    if (rank == 1) {
      while (group.error() == nullptr) {
        std::this_thread::sleep_for(milliseconds{5});
        std::vector<float> ones(1, 1);
        group.run(on(ones));
      }
    }
    std::vector<float> values(4);
    Collective collective = on(values, OpKind::kRecv);
    collective.root = 1;
    collective.timeout = milliseconds{300};
    const auto in = group.submit(std::move(collective));
    for (;;) {
      std::vector<float> ones(1, 1);
      group.run(on(ones));
    }
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
    EXPECT_NE(test::text_of(error).find("nothing of it has moved for 300 ms"), std::string::npos)
        << test::text_of(error);
  }
}

TEST_P(GroupTransfers, ShutdownWaitsForEveryLane) {
  GroupMaker maker({2}, GetParam(), limits());
  maker.run_ok([](int rank, Group& group) {
    std::vector<float> mine(500'000, static_cast<float>(rank));
    std::vector<float> theirs(500'000, -1);
    const auto in = receive(group, theirs, 1 - rank);
    const auto out = send(group, mine, 1 - rank);
    group.shutdown();
    ASSERT_TRUE(in->is_done());
    ASSERT_TRUE(out->is_done());
    ASSERT_EQ(theirs, std::vector<float>(theirs.size(), static_cast<float>(1 - rank)));
    EXPECT_THROW(receive(group, theirs, 1 - rank), InvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupTransfers,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere, TransportKind::kEncrypted,
                                         TransportKind::kMpi),
                         [](const auto& each) { return test::to_string(each.param); });

}  // namespace
}  // namespace chainmail::ops
