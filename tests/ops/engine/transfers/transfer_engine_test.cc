// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The engines of sends and receives over a transport that does what a test says, in the test's own
// thread: what happens between two calls of theirs.

#include "ops/engine/transfers/transfer_engine.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/engine/transfers/transfers.h"
#include "tests/ops/support/no_threads.h"
#include "tests/ops/support/ranks.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

/// What a FakeTransport does, and what has been done with it.
struct Script {
  std::function<void()> during_wait = [] {};  ///< in place of sleeping
  std::function<void()> during_progress = [] {};
  bool has_message = false;  ///< of every peer
  bool moves_at_once = false;
  std::vector<const Receive*> received;
  std::exception_ptr failed_with;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport(Script& script, int size) : script_(script) {
    for (int rank = 0; rank < size; ++rank) names_.push_back({rank, "host"});
  }
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return static_cast<int>(names_.size()); }
  const PeerName& name(int peer) const override {
    return names_.at(static_cast<std::size_t>(peer));
  }
  void begin(std::uint64_t, const MessageHeader&) override {}
  void post(Send& send) override { send.is_done = script_.moves_at_once; }
  void post(Receive& receive) override {
    script_.received.push_back(&receive);
    receive.is_done = script_.moves_at_once;
  }
  void inquire(const Transfer&) override {}
  bool has_message(int, std::uint64_t) const override { return script_.has_message; }
  void expect_all() override {}
  PeerState state(int) const override { return PeerState::kConnected; }
  bool progress() override {
    script_.during_progress();
    return false;
  }
  void wait(std::chrono::microseconds) override { script_.during_wait(); }
  void fail(const std::exception_ptr& error) noexcept override {
    if (script_.failed_with == nullptr) script_.failed_with = error;
  }
  void interrupt() noexcept override {}
  TransportCounters counters() const noexcept override { return {}; }

 private:
  Script& script_;
  std::vector<PeerName> names_;
};

/// No thread can be had: all happens where the test calls.
class TransferEngines : public testing::Test {
 protected:
  const test::NoThreads no_threads_;

  static std::exception_ptr reason() {
    return std::make_exception_ptr(PeerError("rank 1 died", 1));
  }

  std::shared_ptr<TransferEngine> engine() {
    TransferEnginePlan plan;
    plan.make = [this] { return std::make_unique<FakeTransport>(script_, 2); };
    plan.ranks = {0, 1};
    plan.is_served = {false, true};
    return std::make_shared<TransferEngine>(
        std::move(plan), executor_, [this](const PlannedOperation&, const std::exception_ptr& e) {
          told_.push_back(test::text_of(e));
        });
  }

  static Collective receive(int from, std::byte* to) {
    Collective collective;
    collective.kind = OpKind::kRecv;
    collective.dtype = DataType::kUInt8;
    collective.count = 4;
    collective.output = to;
    collective.root = from;
    collective.is_async = false;
    return collective;
  }
  std::shared_ptr<TransferOperation> receive_from_rank_1() {
    return std::make_shared<TransferOperation>(nullptr, receive(1, data_), Plan{}, seconds{60});
  }

  /// Of rank 0: one engine serves rank 1, another one rank 2.
  std::shared_ptr<Transfers> transfers_of_two_engines() {
    CommFactory factory;
    factory.transport_on_node = [this](const CommRequest&, const GroupOptions&) {
      return std::make_unique<FakeTransport>(script_, 2);
    };
    factory.transport_anywhere = [this](const CommRequest&, const GroupOptions&) {
      return std::make_unique<FakeTransport>(far_script_, 3);
    };
    const std::vector<int> nodes{2, 1};
    return std::make_shared<Transfers>(0, Topology::from_node_sizes(nodes), GroupOptions{},
                                       std::vector<int>{0, 1, 2}, factory,
                                       std::make_shared<LocalRendezvous>(), executor_,
                                       [](const PlannedOperation&, const std::exception_ptr&) {});
  }

  std::byte data_[4]{};
  Script script_;
  Script far_script_;
  std::vector<std::string> told_;
  std::shared_ptr<CallbackExecutor> executor_ = std::make_shared<CallbackExecutor>();
};

TEST_F(TransferEngines, AFailureIsNotLostInTheShutdownThatFollows) {
  const auto engine = this->engine();
  const auto operation = receive_from_rank_1();
  engine->submit(operation);
  bool has_failed = false;
  script_.during_wait = [&] {  // who sleeps there is to end the transfers, and does not come to it
    engine->fail_all(reason());
    has_failed = true;
    std::this_thread::sleep_for(milliseconds{10});
  };
  while (!has_failed) static_cast<void>(engine->wait(*operation, milliseconds{5}));
  engine->close();
  engine->stop();
  engine->disconnect();
  EXPECT_EQ(test::text_of(operation->error()), "recv #0: rank 1 died");
  EXPECT_EQ(test::text_of(script_.failed_with), "rank 1 died") << "the peers are to hear it";
}

TEST_F(TransferEngines, AFailureWhenNothingIsUnderWayIsToldToThePeersInTheShutdown) {
  const auto engine = this->engine();
  script_.moves_at_once = true;
  engine->submit(receive_from_rank_1());
  bool has_failed = false;
  script_.during_wait = [&] {
    engine->fail_all(reason());
    has_failed = true;
    std::this_thread::sleep_for(milliseconds{10});
  };
  const auto elsewhere = receive_from_rank_1();
  while (!has_failed) static_cast<void>(engine->wait(*elsewhere, milliseconds{5}));
  engine->close();
  engine->stop();
  engine->disconnect();
  EXPECT_EQ(test::text_of(script_.failed_with), "rank 1 died");
}

TEST_F(TransferEngines, ATransportThatBreaksWhenNothingIsUnderWayEndsWhatComesNext) {
  const auto engine = this->engine();
  script_.moves_at_once = true;
  engine->submit(receive_from_rank_1());
  script_.during_progress = [] { throw PeerError("the connection broke", 1); };
  const auto elsewhere = receive_from_rank_1();
  EXPECT_FALSE(engine->wait(*elsewhere, milliseconds{1}));
  EXPECT_TRUE(told_.empty());
  const auto next = receive_from_rank_1();
  engine->submit(next);
  EXPECT_EQ(test::text_of(next->error()), "recv #1: the connection broke");
  EXPECT_THAT(told_, ElementsAre("the connection broke"));
  EXPECT_THROW(engine->submit(receive_from_rank_1()), PeerError);
}

TEST_F(TransferEngines, AReceiveFromAnyRankThatIsRefusedIsNotKept) {
  const auto transfers = transfers_of_two_engines();
  const auto submit = [&](Collective collective) {
    return transfers->submit(std::move(collective), Plan{}, seconds{60});
  };
  // The far engine has a message for the first one. The near one lets go of it when it gets the
  // second, which closes both before the far one gets that.
  far_script_.has_message = far_script_.moves_at_once = true;
  Collective first = receive(kAnyRank, data_);
  first.keep =
      std::shared_ptr<void>(nullptr, [&](void*) { transfers->for_all(&TransferEngine::close); });
  EXPECT_TRUE(submit(std::move(first))->is_done());
  std::byte freed[4]{};
  EXPECT_THROW(submit(receive(kAnyRank, freed)), InvalidArgument);
  script_.has_message = true;
  EXPECT_TRUE(transfers->drain(seconds{20}));
  EXPECT_TRUE(script_.received.empty()) << "the caller was told that it was not submitted";
  transfers->for_all(&TransferEngine::stop);
  transfers->for_all(&TransferEngine::disconnect);
}

TEST_F(TransferEngines, AReceiveFromAnyRankComesWithoutThreads) {
  const auto transfers = transfers_of_two_engines();
  script_.during_wait =
      far_script_.during_wait = [] { std::this_thread::sleep_for(milliseconds{1}); };
  int rounds = 0;
  far_script_.moves_at_once = true;
  far_script_.during_progress = [&] { far_script_.has_message = ++rounds > 3; };
  const auto operation = transfers->submit(receive(kAnyRank, data_), Plan{}, seconds{60});
  operation->wait(seconds{20});
  EXPECT_EQ(operation->source_rank(), 2);
  far_script_.during_progress = [] {};
  far_script_.has_message = false;
  const auto never = transfers->submit(receive(kAnyRank, data_), Plan{}, seconds{60});
  EXPECT_THROW(never->wait(milliseconds{1}), TimeoutError);
  transfers->for_all(&TransferEngine::stop);
  transfers->for_all(&TransferEngine::disconnect);
}

/// Answers nobody: who asks is held until the deadline.
class SilentRendezvous final : public Rendezvous {
 public:
  void set(const std::string&, const std::string&) override {}
  std::string get(const std::string&, internal::Deadline) override {
    throw TimeoutError("the rendezvous does not answer");
  }
  std::optional<std::string> try_get(const std::string&, internal::Deadline deadline) override {
    ++questions_;
    while (!deadline.has_passed()) std::this_thread::sleep_for(milliseconds{1});
    throw TimeoutError("the rendezvous does not answer");
  }
  int questions() const { return questions_; }

 private:
  int questions_ = 0;
};

// They are asked for while other threads wait for the engine, an abort among them.
TEST_F(TransferEngines, HostsOfASilentRendezvousAreWaitedForOnce) {
  const auto rendezvous = std::make_shared<SilentRendezvous>();
  std::vector<std::string> hosts;
  CommFactory factory;
  factory.transport_anywhere = [&](const CommRequest& request, const GroupOptions&) {
    hosts = request.hosts;
    return std::make_unique<FakeTransport>(script_, 4);
  };
  GroupOptions options;
  options.host = "here";
  const std::vector<int> nodes{1, 1, 1, 1};
  const auto transfers = std::make_shared<Transfers>(
      0, Topology::from_node_sizes(nodes), options, std::vector<int>{0, 1, 2, 3}, factory,
      rendezvous, executor_, [](const PlannedOperation&, const std::exception_ptr&) {});
  script_.moves_at_once = true;
  transfers->submit(receive(1, data_), Plan{}, seconds{60})->wait();
  EXPECT_THAT(hosts, ElementsAre("here", "node 1", "node 2", "node 3"));
  EXPECT_EQ(rendezvous->questions(), 1);
  transfers->for_all(&TransferEngine::stop);
  transfers->for_all(&TransferEngine::disconnect);
}

}  // namespace
}  // namespace chainmail::ops
