// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a store does to its callers that never answers, as torch's TCPStore does when the process
// that serves it is stopped.

#include "plugin/c10d/store/store_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <any>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/core/liveness.h"
#include "plugin/c10d/store/group/group_rendezvous.h"
#include "plugin/c10d/store/store_link.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// What is far longer than any wait here may last, on a busy machine, too, and far shorter than for
// ever.
constexpr seconds kLong{20};

/// A HashStore whose clone, or whose every call, is caught until release().
class StoppedStore final : public c10d::HashStore {
 public:
  ~StoppedStore() override { release(); }

  void stop() { change(true); }
  void release() { change(false); }
  bool catches_clones = false;

  c10::intrusive_ptr<c10d::Store> clone() override {
    if (catches_clones) pass();
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    pass();
    HashStore::set(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    pass();
    return HashStore::check(keys);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    pass();
    return HashStore::compareSet(key, expected, desired);
  }

 private:
  void change(bool is_stopped) {
    const std::lock_guard lock(mutex_);
    is_stopped_ = is_stopped;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_stopped_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
};

class StoppedStoreTest : public ::testing::Test {
 protected:
  ~StoppedStoreTest() override { store_->release(); }

  // What nobody waits for may be written a moment later.
  void expect_no_keys() {
    const auto deadline = Deadline::after(kLong);
    while (store_->getNumKeys() != 0 && !deadline.has_passed()) {
      std::this_thread::sleep_for(milliseconds{1});
    }
    EXPECT_EQ(store_->getNumKeys(), 0);
  }

  c10::intrusive_ptr<StoppedStore> store_ = c10::make_intrusive<StoppedStore>();
  c10::intrusive_ptr<c10d::Store> base_ = store_;
};

bool is_quick(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return Clock::now() - start < kLong;
}

std::string bytes_of(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

TEST_F(StoppedStoreTest, EveryCallerIsBackAtItsOwnDeadline) {
  StoreLink link(base_);
  link.set("key", "value");
  EXPECT_EQ(link.try_get("key", Deadline::after(kLong)), "value");
  store_->stop();
  auto patient = std::async(std::launch::async,
                            [&] { return link.try_get("key", Deadline::after(kLong * 10)); });
  EXPECT_TRUE(is_quick([&] {
    EXPECT_THROW((void)link.try_get("key", Deadline::after(milliseconds{50})), TimeoutError);
  }));
  // Who can wait gets the answer when there is one.
  EXPECT_EQ(patient.wait_for(milliseconds{100}), std::future_status::timeout);
  store_->release();
  EXPECT_EQ(patient.get(), "value");
}

TEST_F(StoppedStoreTest, ASilentStoreIsNamedWithHowLongItHasBeenSilent) {
  StoreLink link(base_);
  store_->stop();
  try {
    (void)link.try_get("key", Deadline::after(milliseconds{400}));
    FAIL() << "no exception";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("has not answered for "));
  }
}

TEST_F(StoppedStoreTest, WhoAsksASilentStoreHardlyWaits) {
  const StoreRendezvous store(base_);
  const ops::LivenessRendezvous rendezvous(std::make_shared<StoreRendezvous>(base_), {});
  EXPECT_GT(rendezvous.patience(kLong).left(), kLong / 2);
  store_->stop();
  EXPECT_THROW((void)store.link()->try_get("key", Deadline::after(milliseconds{700})),
               TimeoutError);
  for (const ops::Rendezvous* each : {static_cast<const ops::Rendezvous*>(&store),
                                      static_cast<const ops::Rendezvous*>(&rendezvous)}) {
    EXPECT_TRUE(each->is_silent());
    EXPECT_LE(each->patience(kLong).left(), milliseconds{100});
  }
  store_->release();
  (void)store.link()->try_get("key", Deadline::after(kLong));
  EXPECT_FALSE(rendezvous.is_silent());
}

TEST_F(StoppedStoreTest, WhatIsWrittenArrivesInOrderOnceTheStoreAnswers) {
  StoreLink link(base_);
  store_->stop();
  EXPECT_TRUE(is_quick([&] {
    for (int i = 0; i < 1000; ++i) link.set("key" + std::to_string(i % 10), std::to_string(i));
  }));
  store_->release();
  EXPECT_EQ(link.try_get("key9", Deadline::after(kLong)), "999");
  EXPECT_EQ(link.try_get("key0", Deadline::after(kLong)), "990");
}

TEST_F(StoppedStoreTest, WhatIsWrittenDoesNotGrowForEver) {
  StoreLink link(base_);
  store_->stop();
  EXPECT_THROW(
      {
        for (int i = 0; i < 100'000; ++i) link.set("key", std::to_string(i));
      },
      TimeoutError);
}

TEST_F(StoppedStoreTest, AQuestionThatNobodyWaitsForIsNotAsked) {
  StoreThread thread(base_);
  store_->stop();
  thread.run_or_post([](c10d::Store& store) -> std::any { return store.check({"x"}); });
  bool is_asked = false;
  EXPECT_THROW(thread.run(
                   [&is_asked](c10d::Store& /*store*/) -> std::any {
                     is_asked = true;
                     return {};
                   },
                   Deadline::after(milliseconds{20})),
               TimeoutError);
  store_->release();
  thread.run([](c10d::Store& /*store*/) -> std::any { return {}; }, Deadline::after(kLong));
  EXPECT_FALSE(is_asked);
}

TEST_F(StoppedStoreTest, AnErrorOfTheStoreReachesWhoeverWaits) {
  StoreThread thread(base_);
  const auto fail = [](c10d::Store& /*store*/) -> std::any { throw std::out_of_range("no"); };
  EXPECT_THROW(thread.run(fail, Deadline::after(kLong)), std::out_of_range);
  EXPECT_THROW(thread.run_or_post(fail), std::out_of_range);
}

/// A HashStore whose host has gone.
class LostStore final : public c10d::HashStore {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
  std::vector<std::uint8_t> compareSet(const std::string& /*key*/,
                                       const std::vector<std::uint8_t>& /*expected*/,
                                       const std::vector<std::uint8_t>& /*desired*/) override {
    ++calls;
    TORCH_CHECK_WITH(DistNetworkError, false, "connection was closed");
  }
  std::atomic<int> calls{0};
};

TEST(LostStoreTest, ABrokenConnectionIsNotTriedAgain) {
  const auto lost = c10::make_intrusive<LostStore>();
  StoreLink link(lost);
  for (int i = 0; i < 3; ++i) {
    try {
      static_cast<void>(link.try_get("key", Deadline::after(kLong)));
      FAIL() << "no error";
    } catch (const PeerError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("connection was closed"), std::string::npos) << text;
      EXPECT_EQ(text.find("Exception raised"), std::string::npos) << text;  // torch's backtrace
    }
  }
  EXPECT_THROW(link.set("key", "value"), PeerError);
  EXPECT_EQ(lost->calls, 1);
}

TEST_F(StoppedStoreTest, CloningIsNotWaitedForEither) {
  store_->catches_clones = true;
  store_->stop();
  EXPECT_TRUE(is_quick([&] {
    const auto link = StoreLink::to(base_);
    EXPECT_THROW((void)link->try_get("key", Deadline::after(milliseconds{50})), TimeoutError);
    EXPECT_EQ(StoreLink::to(base_), link);
  }));
}

TEST_F(StoppedStoreTest, TheLinkEndsWhileItsThreadIsCaught) {
  EXPECT_TRUE(is_quick([&] {
    StoreLink link(base_);
    store_->stop();
    link.set("key", "value");
  }));
  // The thread that was left does what it had taken over.
  store_->release();
  const auto deadline = Deadline::after(kLong);
  while (!store_->check({"key"}) && !deadline.has_passed()) {
    std::this_thread::sleep_for(milliseconds{1});
  }
  EXPECT_EQ(bytes_of(*store_, "key"), "value");
}

TEST_F(StoppedStoreTest, AGroupAndItsNewsEndWhileTheStoreIsSilent) {
  auto other = std::async(std::launch::async, [&] {
    auto rendezvous = std::make_unique<GroupRendezvous>(base_, "group", 1, 2);
    (void)rendezvous->enter("one", Deadline::after(kLong));
    return rendezvous;
  });
  auto rendezvous = std::make_unique<GroupRendezvous>(base_, "group", 0, 2);
  EXPECT_THAT(rendezvous->enter("zero", Deadline::after(kLong)),
              ::testing::ElementsAre("zero", "one"));
  auto others = other.get();
  auto news = rendezvous->news(nullptr);
  news->subscribe("group", {}, std::make_shared<ops::FailureState>());
  store_->stop();
  EXPECT_TRUE(is_quick([&] {
    rendezvous->set("key", "value");
    EXPECT_EQ(static_cast<ops::Rendezvous&>(*rendezvous).try_get("key"), std::nullopt);
    news->announce("group", std::make_exception_ptr(PeerError("it is over")));
    news->unsubscribe("group");
    news.reset();
    rendezvous.reset();
    others.reset();
  }));
}

TEST_F(StoppedStoreTest, TheLastRankOfAGroupTakesItsKeysAlong) {
  auto other = std::async(std::launch::async, [&] {
    GroupRendezvous rendezvous(base_, "group", 1, 2);
    (void)rendezvous.enter("one", Deadline::after(kLong));
  });
  {
    GroupRendezvous rendezvous(base_, "group", 0, 2);
    (void)rendezvous.enter("zero", Deadline::after(kLong));
  }
  other.get();
  expect_no_keys();
}

TEST_F(StoppedStoreTest, ARankThatLeavesWhileItsHandleLivesWritesNothingMore) {
  GroupRendezvous rendezvous(base_, "group", 0, 2);
  auto other = std::async(std::launch::async, [&] {
    GroupRendezvous others(base_, "group", 1, 2);
    (void)others.enter("one", Deadline::after(kLong));
  });
  (void)rendezvous.enter("zero", Deadline::after(kLong));
  other.get();
  const auto news = rendezvous.news(nullptr);
  rendezvous.leave();
  expect_no_keys();
  rendezvous.leave();
  rendezvous.set("late", "1");
  news->announce("group", std::make_exception_ptr(PeerError("late")));
  expect_no_keys();
}

/// A store whose get() must not be called: it would wait for a key that has gone since.
template <typename Base>
class NoWaitStore final : public Base {
 public:
  using Base::Base;
  std::vector<std::uint8_t> get(const std::string& key) override {
    ADD_FAILURE() << "waits for " << key;
    return {};
  }
};

void expect_one_step(c10d::Store& store) {
  store.set("key", std::vector<std::uint8_t>{'v'});
  store.set("empty", std::vector<std::uint8_t>{});
  EXPECT_EQ(read_if_there(store, "key"), "v");
  EXPECT_EQ(read_if_there(store, "empty"), "");
  EXPECT_EQ(read_if_there(store, "none"), std::nullopt);
  EXPECT_FALSE(store.check({"none"}));
  store.deleteKey("key");
  EXPECT_EQ(read_if_there(store, "key"), std::nullopt);
}

TEST(ReadIfThere, IsOneStepSoThatAKeyThatGoesMeanwhileIsNotWaitedFor) {
  NoWaitStore<c10d::HashStore> hash;
  expect_one_step(hash);
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  NoWaitStore<c10d::TCPStore> tcp("127.0.0.1", options);
  expect_one_step(tcp);
}

TEST_F(StoppedStoreTest, AForkedChildIsToldSoAtOnce) {
  const auto link = StoreLink::to(base_);
  link->set("key", "value");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool is_refused = false;
    try {
      (void)link->try_get("key", Deadline::after(kLong));
    } catch (const InvalidArgument&) {
      is_refused = true;
    }
    StoreRendezvous own(base_);  // its own link, with a thread of its own
    const bool is_read = own.try_get("key", Deadline::after(kLong)) == "value";
    ::_exit(is_refused && is_read ? 0 : 1);
  }
  int status = -1;
  const auto deadline = Deadline::after(kLong);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.has_passed()) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(milliseconds{5});
  }
  EXPECT_EQ(status, 0);
}

// As the threads of hundreds of new groups ask: each of them sleeps until its own answer is there.
TEST(StoreThread, AnAnswerWakesNobodyElse) {
  constexpr int kCallers = 200;
  StoreThread thread(c10::make_intrusive<c10d::HashStore>());
  std::atomic<int> here{0};
  std::atomic<std::int64_t> sleeps{0};
  std::vector<std::future<void>> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.push_back(std::async(std::launch::async, [&] {
      ++here;
      thread.run(
          [&](c10d::Store& /*store*/) -> std::any {
            while (here < kCallers) std::this_thread::sleep_for(milliseconds{1});
            std::this_thread::sleep_for(milliseconds{1});
            return {};
          },
          Deadline::after(kLong));
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      sleeps += usage.ru_nvcsw;
    }));
  }
  for (auto& caller : callers) caller.get();
  std::cout << sleeps << " sleeps of " << kCallers << " callers\n";
  EXPECT_LT(sleeps, 10 * kCallers) << "a sleep for each answer to another would be 100 for each";
}

}  // namespace
}  // namespace chainmail::internal
