// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Time limits, aborts, ranks that leave, and news from outside.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/engine/failure/rendezvous_news.h"
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

/// Holds ranks back until the test lets them go on, at most 20 s.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds{20}, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

class GroupFailure : public testing::TestWithParam<TransportKind> {
 protected:
  static GroupOptions limit(milliseconds timeout) {
    GroupOptions options;
    options.timeout = timeout;
    return options;
  }
};

TEST_P(GroupFailure, ATimeoutNamesTheRankThatDidNotCome) {
  for (const auto& nodes : {std::vector<int>{3}, std::vector<int>{2, 1}}) {
    GroupMaker maker(nodes, GetParam(), limit(milliseconds{700}));
    Gate gate;
    std::atomic<int> waiting{2};
    const Stopwatch watch;
    const auto errors = maker.run([&](int rank, Group& group) {
      std::vector<float> values(10, 1.0F);
      group.run(on(values));  // all are connected
      if (rank == 2) {
        gate.pass();
        return;
      }
      try {
        group.run(on(values));
      } catch (...) {
        if (--waiting == 0) gate.open();
        throw;
      }
    });
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{3}));
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
      ASSERT_TRUE(test::is<TimeoutError>(errors[rank])) << test::text_of(errors[rank]);
      try {
        std::rethrow_exception(errors[rank]);
      } catch (const TimeoutError& e) {
        EXPECT_THAT(e.missing_ranks(), ElementsAre(2));
        EXPECT_THAT(e.what(), HasSubstr("all_reduce #1"));
        EXPECT_THAT(e.what(), HasSubstr("700 ms"));
        EXPECT_THAT(e.what(), HasSubstr("rank 2 (node"));
      }
    }
  }
}

TEST_P(GroupFailure, WaitingInTheQueueDoesNotCountAsTime) {
  const auto pause = std::chrono::ceil<milliseconds>(patient(milliseconds{300}));
  GroupMaker maker({2}, GetParam(), limit(pause * 3 / 2));
  maker.run_ok([pause](int rank, Group& group) {
    std::vector<float> a(10, 1.0F);
    std::vector<float> b(10, 1.0F);
    const auto first = group.submit(on(a));
    const auto second = group.submit(on(b));
    if (rank == 0) {
      first->wait();  // waits for rank 1; the second then has a limit of its own
      second->wait();
    } else {
      std::this_thread::sleep_for(pause);
      first->wait();
      std::this_thread::sleep_for(pause);
      second->wait();
    }
  });
}

TEST_P(GroupFailure, AWaitWithALimitLetsTheOperationGoOn) {
  GroupMaker maker({2}, GetParam(), limit(std::chrono::seconds{20}));
  Gate gate;
  maker.run_ok([&](int rank, Group& group) {
    std::vector<float> values(10, 1.0F);
    if (rank == 1) gate.pass();
    const auto operation = group.submit(on(values));
    if (rank == 0) {
      EXPECT_THROW(operation->wait(milliseconds{50}), TimeoutError);
      EXPECT_FALSE(operation->is_done());
      EXPECT_EQ(group.error(), nullptr);
      gate.open();
    }
    operation->wait();
    EXPECT_EQ(values[9], 2.0F);
  });
}

TEST_P(GroupFailure, AbortWakesThisRankAndTheOthers) {
  for (const auto& nodes : {std::vector<int>{3}, {1, 1, 1}, {2, 2}}) {
    GroupMaker maker(nodes, GetParam(), limit(std::chrono::seconds{20}));
    const Stopwatch watch;
    const auto errors = maker.run([](int rank, Group& group) {
      std::vector<float> values(10, 1.0F);
      group.run(on(values));
      if (rank != 0) {
        group.run(on(values));  // rank 0 never comes
        return;
      }
      std::this_thread::sleep_for(milliseconds{100});
      group.abort(std::make_exception_ptr(PeerError("the user had enough", 0)));
      group.run(on(values));
    });
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{2}));
    for (const auto& error : errors) {
      EXPECT_TRUE(test::is<PeerError>(error));
      EXPECT_THAT(test::text_of(error), HasSubstr("the user had enough"));
    }
  }
}

TEST_P(GroupFailure, ARankThatLeavesIsReported) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limit(std::chrono::seconds{20}));
    const Stopwatch watch;
    const auto errors = maker.run([](int rank, Group& group) {
      std::vector<float> values(10, 1.0F);
      group.run(on(values));
      if (rank == 1) {
        throw std::runtime_error("leaves");  // the group is destroyed while rank 0 needs it
      }
      group.run(on(values));
    });
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{2}));
    EXPECT_TRUE(test::is<PeerError>(errors[0])) << test::text_of(errors[0]);
    EXPECT_THAT(test::text_of(errors[0]), HasSubstr("all_reduce #1"));
  }
}

// A neighbour that waits for a rank whose receive fails hears why, and does not blame that rank.
TEST_P(GroupFailure, NeighboursOfAFailedReceiveLearnWhoHasLeft) {
  if (GetParam() == TransportKind::kReference) GTEST_SKIP() << "a board gives no reasons";
  GroupMaker maker({2, 2}, GetParam(), limit(std::chrono::seconds{20}));
  Gate gate;
  const auto errors = maker.run([&](int rank, Group& group) {
    std::vector<float> values(1);
    group.run(on(values, OpKind::kBarrier));  // all are connected
    if (rank == 3) gate.pass();
    if (rank >= 2) {
      Collective send = on(values, OpKind::kSend);  // so that rank 0 knows rank 2
      send.root = 0;
      send.tag = 7;
      if (rank == 2) group.submit(std::move(send))->wait();
      return;  // rank 2 leaves while the others need it
    }
    try {
      Collective receive = on(values, OpKind::kRecv);
      receive.root = 2;
      rank == 0 ? group.submit(std::move(receive))->wait()
                : group.run(on(values, OpKind::kBarrier));
    } catch (...) {
      if (rank == 1) gate.open();
      throw;
    }
  });
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
    ASSERT_TRUE(test::is<PeerError>(errors[rank])) << test::text_of(errors[rank]);
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const PeerError& e) {
      EXPECT_EQ(e.peer_rank(), 2) << "on rank " << rank << ": " << e.what();
    }
  }
}

/// News that a test writes itself.
class ScriptedNews final : public FailureNews {
 public:
  void subscribe(const std::string& group, const std::vector<int>&,
                 std::shared_ptr<FailureState> state) override {
    const std::lock_guard lock(mutex_);
    states_[group] = std::move(state);
  }
  void unsubscribe(const std::string& group) override {
    const std::lock_guard lock(mutex_);
    states_.erase(group);
  }
  void announce(const std::string&, const std::exception_ptr&) noexcept override { ++announced; }
  void tell(const std::string& group, const std::exception_ptr& error) {
    std::shared_ptr<FailureState> state;
    {
      const std::lock_guard lock(mutex_);
      state = states_.at(group);
    }
    state->fail(error);
  }
  bool has(const std::string& group) {
    const std::lock_guard lock(mutex_);
    return states_.count(group) > 0;
  }
  std::atomic<int> announced{0};

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<FailureState>> states_;
};

TEST_P(GroupFailure, NewsOfADeadRankEndsTheWaitWithItsCause) {
  GroupMaker maker({2}, GetParam(), limit(std::chrono::seconds{20}));
  const auto news = std::make_shared<ScriptedNews>();
  Gate gate;
  const auto errors = test::run_ranks(2, [&](int rank) {
    if (rank == 1) {
      const auto group = maker.join(rank);
      gate.pass();
      return;
    }
    const auto group = maker.join(rank, news);
    std::thread teller([&] {
      std::this_thread::sleep_for(milliseconds{100});
      news->tell("world",
                 std::make_exception_ptr(PeerError("rank 1 (n2) was killed by signal 9", 1)));
    });
    std::vector<float> values(10);
    try {
      group->run(on(values));
      ADD_FAILURE() << "rank 1 never came";
    } catch (const PeerError& e) {
      EXPECT_THAT(e.what(), HasSubstr("killed by signal 9"));
      EXPECT_EQ(e.peer_rank(), 1);
    }
    teller.join();
    gate.open();
    EXPECT_TRUE(news->has("world"));
  });
  EXPECT_EQ(test::text_of(errors[0]), "");
  EXPECT_FALSE(news->has("world"));      // the group has gone
  EXPECT_EQ(news->announced.load(), 0);  // everybody has heard it already
}

TEST_P(GroupFailure, AFailureIsAnnouncedOnce) {
  GroupMaker maker({2}, GetParam(), limit(milliseconds{300}));
  const auto news = std::make_shared<ScriptedNews>();
  Gate gate;
  const auto errors = test::run_ranks(2, [&](int rank) {
    const auto group = maker.join(rank, rank == 0 ? news : nullptr);
    if (rank == 1) {
      gate.pass();
      return;
    }
    std::vector<float> values(10);
    EXPECT_THROW(group->run(on(values)), TimeoutError);
    EXPECT_THROW(group->run(on(values)), TimeoutError);
    group->abort(std::make_exception_ptr(PeerError("again")));
    gate.open();
  });
  EXPECT_EQ(test::text_of(errors[0]), "");
  EXPECT_EQ(news->announced.load(), 1);
}

TEST_P(GroupFailure, NewsOverARendezvousReachesIdleRanks) {
  GroupMaker maker({1, 1}, GetParam(), limit(std::chrono::seconds{20}));
  const auto store = std::make_shared<LocalRendezvous>();
  Gate gate;
  const auto errors = test::run_ranks(2, [&](int rank) {
    const auto group = maker.join(rank, std::make_shared<RendezvousNews>(store));
    if (rank == 0) {
      group->abort(std::make_exception_ptr(TimeoutError("rank 0 gave up", {1})));
      gate.pass();
      return;
    }
    const Stopwatch watch;
    while (group->error() == nullptr && watch.elapsed() < patient(std::chrono::seconds{3})) {
      std::this_thread::sleep_for(milliseconds{5});
    }
    EXPECT_TRUE(test::is<TimeoutError>(group->error()));
    EXPECT_EQ(test::text_of(group->error()), "rank 0 gave up");
    gate.open();
  });
  EXPECT_EQ(test::text_of(errors[0]), "");
  EXPECT_EQ(test::text_of(errors[1]), "");
}

TEST_P(GroupFailure, ACallbackMayDropTheLastHandle) {
  GroupMaker maker({2}, GetParam(), limit(std::chrono::seconds{20}));
  const auto errors = test::run_ranks(2, [&](int rank) {
    std::shared_ptr<Group> group = maker.join(rank);
    std::vector<float> values(50'000, 1.0F);  // large: runs in the progress thread
    const auto operation = group->submit(on(values));
    Gate dropped;
    operation->on_done([moved = std::move(group), &dropped]() mutable {
      moved.reset();
      dropped.open();
    });
    operation->wait();
    dropped.pass();
    EXPECT_EQ(values[49'999], 2.0F);
  });
  EXPECT_EQ(test::text_of(errors[0]), "");
  EXPECT_EQ(test::text_of(errors[1]), "");
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupFailure,
                         testing::Values(TransportKind::kReference, TransportKind::kReal,
                                         TransportKind::kTcpEverywhere, TransportKind::kEncrypted,
                                         TransportKind::kMpi),
                         [](const auto& of) { return test::to_string(of.param); });

}  // namespace
}  // namespace chainmail::ops
