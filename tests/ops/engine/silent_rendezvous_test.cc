// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A group whose rendezvous does not answer any more, as when its host is stopped or cut off: errors
// that are known must reach their callers all the same.

#include <atomic>
#include <barrier>
#include <chrono>
#include <exception>
#include <latch>
#include <memory>
#include <optional>
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

using Clock = std::chrono::steady_clock;
using internal::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::on;
using testing::HasSubstr;

// Far longer than any wait here may last, far shorter than for ever.
constexpr seconds kLong{20};

/// Answers nobody after fall_silent(): who asks is held until his deadline, an hour at most.
class FallibleRendezvous final : public Rendezvous {
 public:
  using Rendezvous::try_get;
  void fall_silent() { is_silent_ = true; }
  int questions() const { return questions_; }

  void set(const std::string& key, const std::string& value) override {
    if (!is_silent_) inner_.set(key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    hold(deadline);
    return inner_.get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    hold(deadline);
    return inner_.try_get(key, deadline);
  }

 private:
  void hold(Deadline deadline) {
    if (!is_silent_) return;
    ++questions_;
    std::this_thread::sleep_for(std::min<milliseconds>(deadline.left(), std::chrono::hours{1}));
    throw TimeoutError("the rendezvous does not answer");
  }

  LocalRendezvous inner_;
  std::atomic<bool> is_silent_{false};
  std::atomic<int> questions_{0};
};

struct SilentWorld {
  explicit SilentWorld(std::vector<int> nodes) : topology(Topology::from_node_sizes(nodes)) {}

  std::shared_ptr<Group> join(int rank, milliseconds timeout) const {
    GroupOptions options;
    options.timeout = timeout;
    options.secret = std::string(32, 's');
    options.interface = "127.0.0.1";
    options.host = "node" + std::to_string(topology.node_of(rank) + 1);
    return create_group_with(default_comm_factory(options), rank, topology, rendezvous, options, {},
                             std::make_shared<RendezvousNews>(news));
  }

  Topology topology;
  std::shared_ptr<FallibleRendezvous> rendezvous = std::make_shared<FallibleRendezvous>();
  std::shared_ptr<FallibleRendezvous> news = std::make_shared<FallibleRendezvous>();
};

class SilentRendezvousTest : public testing::TestWithParam<std::vector<int>> {};

// `before` is what has been done before the rendezvous falls silent.
std::vector<std::exception_ptr> errors_of_a_rank_that_does_not_come(const std::vector<int>& nodes,
                                                                    bool are_connected) {
  const SilentWorld world(nodes);
  const int size = world.topology.size();
  std::barrier ready(size, [&world]() noexcept {
    world.rendezvous->fall_silent();
    world.news->fall_silent();
  });
  std::latch all_have_failed(size - 1);
  return test::run_ranks(size, [&](int rank) {
    const auto group = world.join(rank, milliseconds{1500});
    std::vector<float> values(10, 1.0F);
    if (are_connected) group->run(on(values));
    ready.arrive_and_wait();  // which makes it silent
    const auto start = Clock::now();
    if (rank == size - 1) {
      all_have_failed.wait();
      return;
    }
    try {
      group->run(on(values));
    } catch (...) {
      EXPECT_LT(Clock::now() - start, patient(kLong));
      all_have_failed.count_down();
      throw;
    }
  });
}

TEST_P(SilentRendezvousTest, ATimeoutIsToldAndSaysThatNobodyCouldBeAsked) {
  for (const bool are_connected : {true, false}) {
    const auto start = Clock::now();
    auto errors = errors_of_a_rank_that_does_not_come(GetParam(), are_connected);
    errors.pop_back();
    EXPECT_LT(Clock::now() - start, patient(kLong));
    for (const auto& error : errors) {
      ASSERT_TRUE(test::is<TimeoutError>(error)) << test::text_of(error);
      EXPECT_THAT(test::text_of(error), HasSubstr("nothing of it has moved for 1500 ms"));
    }
    EXPECT_THAT(test::text_of(errors[0]), HasSubstr("cannot be found out"));
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, SilentRendezvousTest,
                         testing::Values(std::vector<int>{3}, std::vector<int>{2, 1}));

TEST(SilentRendezvous, NewsEndWhileTheirThreadAsks) {
  const auto store = std::make_shared<FallibleRendezvous>();
  auto news = std::make_unique<RendezvousNews>(store);
  store->fall_silent();
  news->subscribe("group", {}, std::make_shared<FailureState>());
  while (store->questions() == 0) std::this_thread::sleep_for(milliseconds{1});
  const auto start = Clock::now();
  news->announce("group", std::make_exception_ptr(PeerError("it is over")));
  news.reset();
  EXPECT_LT(Clock::now() - start, patient(kLong));
}

TEST(SilentRendezvous, WhoWillAskAgainGetsNothing) {
  FallibleRendezvous store;
  store.set("key", "value");
  EXPECT_EQ(store.try_get("key"), "value");
  store.fall_silent();
  const auto start = Clock::now();
  EXPECT_EQ(store.try_get("key"), std::nullopt);
  EXPECT_LT(Clock::now() - start, patient(kLong));
}

}  // namespace
}  // namespace chainmail::ops
