// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A member of an elastic job whose launcher is the test: what it does when nobody has the state any
// more, what it says it could save, and which errors it takes for its own.

#include "plugin/elastic/member/elastic_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <chainmail/train/agreed_error.h>

#include "base/error.h"
#include "base/membership/wire.h"
#include "tests/plugin/job/launcher/fake_launcher.h"

namespace chainmail::internal {
namespace {

using membership::Generation;
using membership::LauncherMessage;
using membership::NewWorld;
using membership::Start;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Next = ElasticMember::Next;

class FakeGroup final : public ops::Group {
 public:
  FakeGroup() { options_.silence = std::make_shared<ops::PeerSilence>(); }
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  const ops::Topology& topology() const noexcept override { return topology_; }
  const ops::GroupOptions& options() const noexcept override { return options_; }
  std::shared_ptr<ops::Operation> submit(ops::Collective /*collective*/) override { return {}; }
  void run(const ops::Collective& /*collective*/) override {}
  std::shared_ptr<std::byte> allocate(std::size_t /*bytes*/) override { return {}; }
  void abort(std::exception_ptr error) override {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  void shutdown() override {}
  std::exception_ptr error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void on_failure(std::function<void(const std::exception_ptr&)> /*listener*/) override {}
  std::uint64_t sequence() const noexcept override { return 0; }
  void set_timeout(std::chrono::milliseconds /*timeout*/) override {}
  std::shared_ptr<ops::CallbackExecutor> callbacks() const override { return {}; }

 private:
  ops::Topology topology_ = ops::Topology::single_node(1);
  ops::GroupOptions options_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

// Member 1, whose program counts steps and writes down what it is asked for.
class ElasticMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto greeting = std::async(std::launch::async, [this] { launcher_.welcome(true); });
    client_ =
        std::make_shared<LauncherClient>(launcher_.rank_fd(), 0, std::chrono::milliseconds(10'000));
    greeting.get();
    ElasticMember::Callbacks callbacks{
        .leave = [](const auto& /*why*/) {},
        .enter = [this](const auto& /*world*/) { group_ = std::make_shared<FakeGroup>(); },
        .transfer =
            [this](const auto& /*donors*/, auto& /*position*/, bool& is_finished) {
              calls_.emplace_back("transfer");
              is_finished = have_others_ended_;
              return std::uint64_t{0};
            },
        .any = [](bool own) { return own; },
        .begin_anew =
            [this] {
              calls_.emplace_back("begin anew");
              step_ = 0;
              return step_;
            },
        .tell =
            [this] {
              calls_.emplace_back("tell");
              if (on_tell_) on_tell_();
              return step_;
            },
        .group = [this] { return group_; },
        .can_save = [this](std::uint64_t /*step*/) { return can_save_; },
        .save = [this] { calls_.emplace_back("save"); }};
    member_ = std::make_unique<ElasticMember>(client_, 1, std::move(callbacks));
  }

  void tell(LauncherMessage message) {
    launcher_.send(JobMessage::kToMember, membership::encode(membership::LauncherWord{
                                              .message = std::move(message), .hosts = {}}));
  }
  // World `generation` of those members, on a host each.
  void tell_world(Generation generation, std::vector<membership::MemberId> members,
                  std::optional<Start> start) {
    auto world = std::make_shared<membership::World>();
    world->generation = generation;
    world->cut = {0};
    for (const membership::MemberId member : members) {
      world->hosts.push_back(member);
      world->cut.push_back(static_cast<membership::ShardNumber>(world->hosts.size()));
    }
    world->members = std::move(members);
    tell(NewWorld{std::move(world), std::move(start)});
  }
  void end_launcher() { launcher_.send(JobMessage::kLauncherGone, BodyWriter().text("").take()); }

  // Besides how far it is, which it tells every now and then.
  Frame receive() {
    for (;;) {
      Frame frame = launcher_.receive();
      if (frame.type != JobMessage::kStep) return frame;
    }
  }
  template <typename Message>
  Message said() {
    const Frame frame = receive();
    if (frame.type != JobMessage::kFromMember) throw std::runtime_error("another frame");
    return std::get<Message>(membership::decode_member_message(frame.body));
  }
  WillBody will() {
    const Frame frame = receive();
    if (frame.type != JobMessage::kWill) throw std::runtime_error("no will");
    return decode_will(frame.body);
  }

  // What get() returns, while the member does what it is told.
  template <typename Get>
  auto meanwhile(const Get& get) {
    auto got = std::async(std::launch::async, get);
    while (got.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      EXPECT_EQ(member_->wait(std::chrono::milliseconds(10)), Next::kNothing);
    }
    return got.get();
  }
  WillBody will_meanwhile() {
    return meanwhile([this] { return will(); });
  }

  void announce() {
    member_->announce(7);
    EXPECT_EQ(said<membership::Ready>().fingerprint, 7U);
  }
  // Alone in the first world, with so many steps committed.
  void train(std::uint64_t steps) {
    announce();
    tell_world(1, {1}, Start{});
    for (; step_ < steps; ++step_) {
      ASSERT_EQ(member_->wait(), Next::kStep);
      member_->on_exchanged(false);
      member_->on_returned(false);
    }
    ASSERT_EQ(member_->wait(), Next::kStep);
    (void)said<membership::Fetched>();
    if (steps > 0) (void)said<membership::Running>();
    calls_.clear();
  }
  // Joins where others have committed step 2 and lost somebody.
  void replace_lost_one() {
    announce();
    tell_world(2, {0, 1}, std::nullopt);
    (void)meanwhile([this] { return said<membership::MyState>(); });
    tell(membership::Resume{2, Start{2, {0}}});
    ASSERT_EQ(member_->wait(), Next::kRepeat);
    EXPECT_THAT(calls_, ElementsAre("transfer", "tell"));
  }
  // Hears of a newer world, as one that is late does.
  void hear_of_world(Generation generation) {
    tell_world(generation, {1}, std::nullopt);
    while (!group_->error()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  FakeLauncher launcher_;
  std::shared_ptr<LauncherClient> client_;
  std::unique_ptr<ElasticMember> member_;
  std::shared_ptr<FakeGroup> group_;
  std::vector<std::string> calls_;
  std::function<void()> on_tell_;
  std::uint64_t step_ = 0;  // that the program's state is after
  bool can_save_ = true;
  bool have_others_ended_ = false;
};

TEST_F(ElasticMemberTest, SaysAtOnceThatItHasNothingToSaveBeforeItIsReady) {
  end_launcher();
  EXPECT_FALSE(will().has_state);
}

TEST_F(ElasticMemberTest, SaysAtOnceThatItHasNothingToSaveAfterItsEnd) {
  train(2);
  tell(membership::Leave{1});
  EXPECT_EQ(member_->wait(), Next::kEnd);
  end_launcher();
  EXPECT_FALSE(will().has_state);
}

// Whether the word comes before or after: who has left run() by an error never reads it.
TEST_F(ElasticMemberTest, SaysThatItHasNothingToSaveWhenItStopsHearing) {
  train(2);
  end_launcher();
  member_->stop_hearing();
  EXPECT_FALSE(will().has_state);
}

TEST_F(ElasticMemberTest, CouldSaveWhatItHasCommitted) {
  train(2);
  end_launcher();
  const WillBody said = will_meanwhile();
  EXPECT_TRUE(said.has_state);
  EXPECT_EQ(said.step, 2U);
  EXPECT_FALSE(said.is_saved);
}

TEST_F(ElasticMemberTest, HasNothingToSaveBeforeTheFirstStep) {
  train(0);
  end_launcher();
  EXPECT_FALSE(will_meanwhile().has_state);
}

TEST_F(ElasticMemberTest, HasNothingToSaveWithoutAPlace) {
  can_save_ = false;
  train(2);
  end_launcher();
  EXPECT_FALSE(will_meanwhile().has_state);
}

// A checkpoint of step 500 is there, and a member is lost while it is read.
TEST_F(ElasticMemberTest, ReadsACheckpointAgainWhoseReadingWasInterrupted) {
  announce();
  on_tell_ = [this] {
    step_ = 500;
    member_->set_altered(true);
    if (calls_.size() > 4) return;
    hear_of_world(2);
    throw PeerError("rank 0 is lost", 0);
  };
  tell_world(1, {0, 1}, Start{});
  EXPECT_EQ(meanwhile([this] { return said<membership::Accuse>(); }).peer, 0U);
  EXPECT_EQ(meanwhile([this] { return said<membership::MyState>(); }).step, std::nullopt);
  EXPECT_THAT(calls_, ElementsAre("begin anew", "transfer", "tell"));
  tell(membership::Resume{2, Start{}});
  calls_.assign(3, "before");
  EXPECT_EQ(member_->wait(), Next::kStep);
  EXPECT_EQ(calls_.back(), "tell");
  EXPECT_EQ(calls_[3], "begin anew");
  EXPECT_EQ(said<membership::Fetched>().step, 500U);
  EXPECT_EQ(member_->step(), 501);
}

// It takes the place of one that was lost, in a program that says only later that it has ended.
TEST_F(ElasticMemberTest, HearsThatOthersHaveEndedWhereItRepeatsTheirLastStep) {
  have_others_ended_ = true;
  replace_lost_one();
  EXPECT_TRUE(member_->has_ended());
}

TEST_F(ElasticMemberTest, GoesOnWithOthersThatDoWhereItRepeatsTheirStep) {
  replace_lost_one();
  EXPECT_FALSE(member_->has_ended());
}

// Those are several where a host is cut off, and one of them alone may have been named by somebody.
TEST_F(ElasticMemberTest, AccusesWhoDoesNotAnswerRatherThanWhomAnErrorNames) {
  train(1);
  const auto error = std::make_exception_ptr(PeerError("rank 0 is lost", 0));
  group_->abort(error);
  EXPECT_TRUE(member_->is_world_over(error));
  EXPECT_EQ(said<membership::Accuse>().peer, 0U);
  for (const int rank : {3, 2}) group_->options().silence->add(rank);
  EXPECT_TRUE(member_->is_world_over(error));
  EXPECT_EQ(said<membership::Accuse>().peer, 2U);
  EXPECT_EQ(said<membership::Accuse>().peer, 3U);
}

// One that has waited as a spare since is the first of those that are left.
TEST_F(ElasticMemberTest, AStateOfTheMiddleIsNoBeginning) {
  train(3);
  tell_world(2, {0}, Start{3, {0}});
  tell_world(3, {1}, Start{});
  EXPECT_THAT([this] { (void)member_->wait(); },
              ThrowsMessage<std::runtime_error>(HasSubstr("it has to begin anew")));
}

TEST_F(ElasticMemberTest, AStateOfTheMiddleTakesThatOfACheckpoint) {
  train(3);
  on_tell_ = [this] { step_ = 2; };
  tell_world(2, {0}, Start{3, {0}});
  tell_world(3, {1}, Start{});
  EXPECT_EQ(member_->wait(), Next::kStep);
  EXPECT_EQ(member_->step(), 3);
  EXPECT_THAT(calls_, ElementsAre("begin anew", "tell"));
}

TEST_F(ElasticMemberTest, WhatAllHaveFoundIsItsOwnAlsoWhenItIsLate) {
  train(1);
  hear_of_world(2);
  const Agreed agreed(MismatchError("the state of an elastic job differs"));
  EXPECT_FALSE(member_->is_world_over(std::make_exception_ptr(agreed)));
  EXPECT_TRUE(member_->is_world_over(std::make_exception_ptr(PeerError("rank 0 is lost", 0))));
}

}  // namespace
}  // namespace chainmail::internal
