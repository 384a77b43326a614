// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/collectives/queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/engine/failure/watchdog.h"
#include "tests/ops/support/no_threads.h"
#include "tests/ops/support/ranks.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using test::NoThreads;

class Queue : public testing::Test {
 protected:
  /// Another caller runs the first operation, until `may_end`; it does when this returns.
  std::thread run_first_until(const std::atomic<bool>& may_end) {
    run_ = [&may_end](QueuedOperation& operation) {
      while (operation.plan.header.sequence == 0 && !may_end) {
        std::this_thread::sleep_for(milliseconds{1});
      }
    };
    std::thread other([this] { queue_->submit(make(false)); });
    EXPECT_TRUE(comes_true([this] { return queue_->running() != nullptr; }));
    return other;
  }

  std::shared_ptr<QueuedOperation> make(bool is_async, std::size_t bytes = 4) {
    Collective collective;
    collective.is_async = is_async;
    Plan plan;
    plan.bytes = bytes;
    return std::make_shared<QueuedOperation>(queue_, std::move(collective), std::move(plan),
                                             milliseconds{10'000});
  }

  void TearDown() override {
    queue_->stop();
    executor_->stop(milliseconds{5'000});
  }

  template <typename Call>
  static std::string peer_error_of(Call call) {
    try {
      call();
    } catch (const PeerError& error) {
      return error.what();
    }
    return "no PeerError";
  }

  /// Waits until `condition`, at most 5 s.
  template <typename Condition>
  static bool comes_true(Condition condition) {
    const auto start = std::chrono::steady_clock::now();
    while (!condition()) {
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes{1}) return false;
      std::this_thread::sleep_for(milliseconds{1});
    }
    return true;
  }

  std::shared_ptr<QueuedOperation> submit_promptly() {
    return queue_->submit_promptly(Collective{}, Plan{}, milliseconds{10'000});
  }

  std::function<void(QueuedOperation&)> run_ = [](QueuedOperation&) {};
  std::function<bool(const Plan&)> attempt_ = [](const Plan&) { return false; };
  std::vector<std::uint64_t> order_;
  std::thread::id last_runner_;
  std::atomic<int> inside_{0};
  std::shared_ptr<CallbackExecutor> executor_ = std::make_shared<CallbackExecutor>();
  std::shared_ptr<OperationQueue> queue_ = std::make_shared<OperationQueue>(
      executor_,
      [this](QueuedOperation& operation) {
        EXPECT_EQ(++inside_, 1) << "two operations at a time";
        order_.push_back(operation.plan.header.sequence);
        last_runner_ = std::this_thread::get_id();
        run_(operation);
        --inside_;
      },
      [this](const Collective&, const Plan& plan) {
        EXPECT_EQ(++inside_, 1) << "two operations at a time";
        const bool is_done = attempt_(plan);
        --inside_;
        return is_done;
      });
};

TEST_F(Queue, ASynchronousOperationRunsInItsCaller) {
  const auto operation = make(false);
  queue_->submit(operation);
  EXPECT_TRUE(operation->is_done());
  EXPECT_EQ(last_runner_, std::this_thread::get_id());
}

TEST_F(Queue, AnAttemptThatSucceedsTakesTheNextNumberAndIsRemembered) {
  attempt_ = [](const Plan& plan) { return plan.header.sequence < 2; };
  EXPECT_EQ(submit_promptly(), nullptr);
  EXPECT_EQ(submit_promptly(), nullptr);
  EXPECT_EQ(queue_->submitted(), 2U);
  ASSERT_EQ(queue_->past().size(), 2U);
  EXPECT_EQ(queue_->past().back().header.sequence, 1U);
  EXPECT_TRUE(order_.empty());

  const auto operation = submit_promptly();
  ASSERT_NE(operation, nullptr);
  EXPECT_TRUE(operation->is_done());
  EXPECT_EQ(order_, std::vector<std::uint64_t>{2}) << "the attempt and the run are one operation";
}

TEST_F(Queue, NoAttemptIsMadeBeforeItsTurn) {
  std::promise<void> begun;
  std::promise<void> may_end;
  auto end = may_end.get_future().share();
  run_ = [&](QueuedOperation& operation) {
    if (operation.plan.header.sequence == 0) {
      begun.set_value();
      EXPECT_EQ(end.wait_for(std::chrono::seconds{10}), std::future_status::ready);
    }
  };
  std::atomic<int> attempts{0};
  attempt_ = [&attempts](const Plan&) { return ++attempts > 0; };
  std::thread other([this] { queue_->submit(make(false)); });
  begun.get_future().wait();
  const auto operation = submit_promptly();
  EXPECT_EQ(attempts, 0);
  may_end.set_value();
  ASSERT_NE(operation, nullptr);
  operation->wait();
  other.join();
  EXPECT_EQ(order_, (std::vector<std::uint64_t>{0, 1}));

  queue_->fail_all(std::make_exception_ptr(PeerError("it is over")));
  EXPECT_THROW(static_cast<void>(submit_promptly()), PeerError);
  EXPECT_EQ(attempts, 0);
}

TEST_F(Queue, WhatAnOperationKeepsMayAskTheQueueWhenItGoes) {
  /// Stands for a tensor whose owner needs a lock that a caller of the queue may hold.
  struct Kept {
    ~Kept() {
      auto answer = std::make_shared<std::promise<std::uint64_t>>();
      const auto answered = answer->get_future();
      std::thread([answer, asked = queue] { answer->set_value(asked->submitted()); }).detach();
      was_answered = answered.wait_for(std::chrono::minutes{1}) == std::future_status::ready;
    }
    std::shared_ptr<OperationQueue> queue;
    std::atomic<bool>& was_answered;
  };
  for (const bool fails : {false, true}) {
    std::atomic<bool> was_answered{false};
    auto operation = make(true);
    auto kept = std::shared_ptr<Kept>(new Kept{queue_, was_answered});
    operation->collective.describe_shapes = [kept] { return std::string(); };
    operation->on_done([kept] {});
    const std::weak_ptr<Kept> watched = kept;
    if (fails) {
      run_ = [](QueuedOperation&) { throw PeerError("it is over"); };
    }
    queue_->submit(operation);
    operation.reset();
    kept.reset();
    EXPECT_TRUE(comes_true([&] { return watched.expired(); }));
    EXPECT_TRUE(comes_true([&] { return was_answered.load(); }));
  }
}

TEST_F(Queue, ASmallOperationIsRunByItsWaiterWhenTheThreadSleeps) {
  int in_caller = 0;
  for (int i = 0; i < 200; ++i) {
    const auto operation = make(true);
    queue_->submit(operation);
    operation->wait();
    in_caller += last_runner_ == std::this_thread::get_id() ? 1 : 0;
  }
  EXPECT_GT(in_caller, 100);
}

TEST_F(Queue, AnOperationNobodyWaitsForBeginsByItself) {
  for (const int pause_ms : {0, 5, 250}) {  // the thread is new, napping, dormant
    std::this_thread::sleep_for(milliseconds{pause_ms});
    const auto operation = make(true);
    queue_->submit(operation);
    EXPECT_TRUE(comes_true([&] { return operation->is_done(); }));
  }
}

TEST_F(Queue, WhatCameBehindALongOneDoesNotStayBehind) {
  // The thread has gone dormant while a caller runs an operation; an asynchronous one comes.
  const auto first = make(true, 1 << 20);
  queue_->submit(first);
  first->wait();
  std::this_thread::sleep_for(milliseconds{250});
  std::shared_ptr<QueuedOperation> late;
  run_ = [&](QueuedOperation& operation) {
    if (!operation.collective.is_async) {
      late = make(true);
      queue_->submit(late);
      std::this_thread::sleep_for(milliseconds{300});
    }
  };
  queue_->submit(make(false));
  EXPECT_TRUE(comes_true([&] { return late->is_done(); }));
}

TEST_F(Queue, OrderIsCallOrderWhoeverRuns) {
  std::vector<std::shared_ptr<QueuedOperation>> operations;
  for (int i = 0; i < 500; ++i) {
    operations.push_back(make(i % 3 != 0, i % 5 == 0 ? 1 << 20 : 4));
    queue_->submit(operations.back());
  }
  for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
    (*operation)->wait();
  }
  ASSERT_EQ(order_.size(), 500U);
  for (std::size_t i = 0; i < order_.size(); ++i) ASSERT_EQ(order_[i], i);
}

TEST_F(Queue, ErrorsReachWaitAndCallbacksComeOnce) {
  run_ = [](QueuedOperation&) { throw PeerError("gone"); };
  const auto operation = make(true);
  std::atomic<int> called{0};
  queue_->submit(operation);
  operation->on_done([&] { ++called; });
  EXPECT_THROW(operation->wait(), PeerError);
  operation->on_done([&] { ++called; });
  EXPECT_TRUE(comes_true([&] { return called == 2; }));
  EXPECT_TRUE(test::is<PeerError>(operation->error()));
  inside_ = 0;
}

TEST_F(Queue, ACallbackMayWaitForOperationsBehindItsOwn) {
  // As callbacks of futures do: they block until an operation is done, which they cannot run.
  std::atomic<int> came{0};
  const auto queued = make(true, 1 << 20);
  std::function<void(int)> submit_next = [&](int depth) {
    const auto next = make(true, 1 << 20);
    next->on_done([&, depth] {
      if (depth < 3) {
        submit_next(depth + 1);
        EXPECT_TRUE(comes_true([&] { return came.load() >= 3 - depth; })) << "at depth " << depth;
      }
      EXPECT_TRUE(comes_true([&] { return queued->is_done(); })) << "at depth " << depth;
      ++came;
    });
    queue_->submit(next);
  };
  submit_next(0);
  queue_->submit(queued);
  EXPECT_TRUE(comes_true([&] { return came == 4; }));
}

TEST_F(Queue, CallbacksDoNotRunInAThreadThatWaitsForAnotherOperation) {
  // Which may hold what the callback takes.
  std::mutex lock;
  std::atomic<bool> has_run{false};
  for (int round = 0; round < 5; ++round) {
    has_run = false;
    {
      const std::lock_guard held(lock);
      const auto first = make(true);
      // Before it can be done: a callback that comes later runs at once, in the one who gives it.
      first->on_done([&] {
        const std::lock_guard taken(lock);
        has_run = true;
      });
      queue_->submit(first);
      const auto second = make(true);
      queue_->submit(second);
      second->wait();  // runs both
      EXPECT_FALSE(has_run);
    }
    EXPECT_TRUE(comes_true([&] { return has_run.load(); }));
  }
}

TEST_F(Queue, FailureEndsWhatHasNotBegun) {
  std::vector<std::shared_ptr<QueuedOperation>> waiting;
  run_ = [&](QueuedOperation& operation) {
    if (operation.plan.header.sequence == 0) {
      for (int i = 0; i < 3; ++i) {
        waiting.push_back(make(true));
        queue_->submit(waiting.back());
      }
      queue_->fail_all(std::make_exception_ptr(PeerError("dead")));
    }
  };
  queue_->submit(make(false));
  ASSERT_EQ(waiting.size(), 3U);
  // Every one says itself what it was: the failure comes from outside and knows of none.
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    EXPECT_EQ(peer_error_of([&] { waiting[i]->wait(); }),
              "all_reduce #" + std::to_string(i + 1) + ": dead");
  }
  EXPECT_EQ(order_.size(), 1U);
  EXPECT_EQ(peer_error_of([&] { queue_->submit(make(true)); }), "all_reduce: dead");
}

TEST_F(Queue, DrainRunsAllAndStopRefuses) {
  const auto operation = make(true);
  queue_->submit(operation);
  EXPECT_TRUE(queue_->drain(milliseconds{5000}));
  EXPECT_TRUE(operation->is_done());
  queue_->stop();
  EXPECT_THROW(queue_->submit(make(true)), InvalidArgument);
}

TEST_F(Queue, NothingIsLeftBehindWhenNoThreadCanBeHad) {
  {
    const NoThreads none;
    const auto operation = make(true);
    EXPECT_THROW(queue_->submit(operation), std::system_error);
    EXPECT_FALSE(operation->is_done());
  }
  queue_->submit(make(false));
  EXPECT_EQ(order_, std::vector<std::uint64_t>{0});  // no number was lost, nothing else ran
}

TEST_F(Queue, TheLookoutIsAHelpNotANeed) {
  const auto watchdog =
      std::make_shared<Watchdog>([] { return std::vector<std::shared_ptr<PlannedOperation>>{}; },
                                 [](const std::vector<LongOperation>&) {});
  {
    const NoThreads none;
    watchdog->touch();
  }
  watchdog->touch();
  watchdog->stop();
}

TEST_F(Queue, ASynchronousOperationGoesOnWhenItsWaiterLeaves) {
  std::atomic<bool> may_end{false};
  std::thread other = run_first_until(may_end);
  Collective collective;
  collective.is_async = false;
  const auto stranded =
      std::make_shared<QueuedOperation>(queue_, std::move(collective), Plan{}, milliseconds{20});
  queue_->submit(stranded);
  EXPECT_THROW(stranded->wait(milliseconds{30}), TimeoutError);
  may_end = true;
  other.join();
  EXPECT_TRUE(comes_true([&] { return stranded->is_done(); }));
}

TEST_F(Queue, AWaiterThatLeavesIsToldSoWhenNoThreadCanBeHad) {
  std::atomic<bool> may_end{false};
  std::thread other = run_first_until(may_end);
  const auto stranded = make(false);
  queue_->submit(stranded);
  {
    const NoThreads none;
    EXPECT_THROW(stranded->wait(milliseconds{1}), TimeoutError);
  }
  may_end = true;
  other.join();
  stranded->wait();
  EXPECT_EQ(order_, (std::vector<std::uint64_t>{0, 1}));
}

TEST_F(Queue, CloseRefusesAndStopEndsWhatIsQueued) {
  std::shared_ptr<QueuedOperation> late;
  std::atomic<int> called{0};
  run_ = [&](QueuedOperation&) {
    late = make(true);
    queue_->submit(late);
    late->on_done([&] { ++called; });
    queue_->close();
    EXPECT_THROW(queue_->submit(make(true)), InvalidArgument);
    queue_->stop();
  };
  queue_->submit(make(false));
  EXPECT_TRUE(comes_true([&] { return called == 1; }));
  EXPECT_THROW(late->wait(), InvalidArgument);
  EXPECT_EQ(order_.size(), 1U);
}

}  // namespace
}  // namespace chainmail::ops
