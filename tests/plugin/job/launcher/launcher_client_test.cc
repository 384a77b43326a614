// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The client against a launcher of three lines: the other end of its socket.

#include "plugin/job/launcher/launcher_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "tests/plugin/job/launcher/fake_launcher.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LauncherClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto greeting = std::async(std::launch::async, [this] { launcher_.welcome(); });
    client_ = std::make_unique<LauncherClient>(launcher_.rank_fd(), 0, milliseconds(10'000));
    greeting.get();
  }

  FakeLauncher launcher_;
  std::unique_ptr<LauncherClient> client_;
};

std::string message_of(const std::exception_ptr& error) {
  return ops::describe_error(error).message;
}

std::string mismatch_in(const std::string& group) {
  const auto code = static_cast<std::uint32_t>(ErrorCode::kMismatch);
  return BodyWriter().u32(0).text(group).u32(code).text("[2] against [3]").i64(-1).take();
}

bool fails_within(const ops::FailureState& state, milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!state.has_failed() && !deadline.has_passed()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return state.has_failed();
}

TEST_F(LauncherClientTest, KnowsItsPlaceAndKeepsTheSocketToItself) {
  EXPECT_EQ(client_->welcome().rank, 1U);
  EXPECT_EQ(client_->welcome().node_of_rank, (std::vector<std::uint32_t>{0, 0, 1}));
  EXPECT_NE(::fcntl(launcher_.rank_fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(LauncherClientTest, MatchesRepliesOfConcurrentRequests) {
  auto first = std::async(std::launch::async,
                          [&] { return client_->get("a", Deadline::after(seconds(10))); });
  const Frame ask_a = launcher_.receive();
  ASSERT_EQ(ask_a.type, JobMessage::kStoreGet);
  auto second = std::async(std::launch::async, [&] { return client_->add("n", -3); });
  const Frame ask_n = launcher_.receive();
  ASSERT_EQ(ask_n.type, JobMessage::kStoreAdd);
  BodyReader a(ask_a.body);
  BodyReader n(ask_n.body);
  // The later request is answered first.
  const std::uint32_t id_n = n.u32();
  EXPECT_EQ(n.text(), "n");
  EXPECT_EQ(n.i64(), -3);
  launcher_.send(JobMessage::kReply, BodyWriter().u32(id_n).u8(1).text("-3").take());
  EXPECT_EQ(second.get(), -3);
  launcher_.send(JobMessage::kReply, BodyWriter().u32(a.u32()).u8(1).text("value").take());
  EXPECT_EQ(first.get(), "value");
}

TEST_F(LauncherClientTest, TellsMissingFromEmpty) {
  for (const std::uint8_t status : {std::uint8_t{0}, std::uint8_t{1}}) {
    auto asked = std::async(std::launch::async, [&] { return client_->try_get("k"); });
    const Frame frame_body = launcher_.receive();
    BodyReader body(frame_body.body);
    launcher_.send(JobMessage::kReply, BodyWriter().u32(body.u32()).u8(status).text("").take());
    EXPECT_EQ(asked.get().has_value(), status == 1);
  }
}

TEST_F(LauncherClientTest, AWaitEndsAtItsDeadlineAndALateReplyHurtsNobody) {
  try {
    (void)client_->get("never", Deadline::after(milliseconds(50)));
    FAIL() << "nobody answered";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("never"), std::string::npos) << error.what();
  }
  const Frame frame_late = launcher_.receive();
  BodyReader late(frame_late.body);
  launcher_.send(JobMessage::kReply, BodyWriter().u32(late.u32()).u8(1).text("late").take());
  auto asked = std::async(std::launch::async, [&] { return client_->try_get("k"); });
  const Frame frame_body = launcher_.receive();
  BodyReader body(frame_body.body);
  launcher_.send(JobMessage::kReply, BodyWriter().u32(body.u32()).u8(1).text("now").take());
  EXPECT_EQ(asked.get(), "now");
}

TEST_F(LauncherClientTest, AStoppedLauncherIsAskedUntilTheDeadlineOnly) {
  const Stopwatch watch;
  EXPECT_THROW((void)client_->try_get("k", Deadline::after(milliseconds(50))), TimeoutError);
  EXPECT_THROW((void)client_->add("k", 1, Deadline::after(milliseconds(50))), TimeoutError);
  EXPECT_LT(watch.elapsed(), patient(seconds(20)));
}

TEST_F(LauncherClientTest, WhoLooksForEndsDoesNotWaitForAStoppedLauncher) {
  const Stopwatch watch;
  EXPECT_FALSE(client_->end_of(1));  // nobody answers
  EXPECT_LT(watch.elapsed(), patient(seconds(10)));
}

TEST_F(LauncherClientTest, WhatAStoppedLauncherDoesNotTakeComesLaterAndWhole) {
  constexpr int kSets = 500;
  const std::string value(4096, 'v');  // together more than the socket has room for
  const Stopwatch watch;
  for (int i = 0; i < kSets; ++i) client_->post_set(std::to_string(i), value);
  EXPECT_THROW(client_->set("no room", value, Deadline::after(milliseconds(50))), TimeoutError);
  client_->announce("g", std::make_exception_ptr(PeerError("it is over")));
  EXPECT_LT(watch.elapsed(), patient(seconds(20)));
  for (int i = 0; i < kSets; ++i) {
    const Frame frame = launcher_.receive();
    ASSERT_EQ(frame.type, JobMessage::kStoreSet);
    BodyReader body(frame.body);
    EXPECT_EQ(body.text(), std::to_string(i));
    EXPECT_EQ(body.text(), value);
  }
  EXPECT_EQ(launcher_.receive().type, JobMessage::kStoreSet);
  EXPECT_EQ(launcher_.receive().type, JobMessage::kGroupFailed);
}

TEST_F(LauncherClientTest, AFullQueueForAStoppedLauncherIsAnError) {
  const std::string value(std::size_t{1} << 19, 'v');
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) client_->post_set("k", value);
      },
      TimeoutError);
}

TEST_F(LauncherClientTest, RefusalsSayWhy) {
  auto asked = std::async(std::launch::async, [&] { return client_->add("word", 1); });
  const Frame frame_body = launcher_.receive();
  BodyReader body(frame_body.body);
  launcher_.send(JobMessage::kReply, BodyWriter().u32(body.u32()).u8(2).text("no number").take());
  EXPECT_THROW(asked.get(), InvalidArgument);
}

TEST_F(LauncherClientTest, ALostRankFailsTheGroupsItIsIn) {
  auto with = std::make_shared<ops::FailureState>();
  auto beside = std::make_shared<ops::FailureState>();
  client_->subscribe("with", {1, 2}, with);
  client_->subscribe("beside", {0, 1}, beside);
  launcher_.send(JobMessage::kNewsRankLost,
                 BodyWriter().u32(2).text("n2").text("killed by signal 9").take());
  ASSERT_TRUE(fails_within(*with, seconds(10)));
  EXPECT_FALSE(beside->has_failed());
  try {
    with->rethrow_if_failed();
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 2);
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("n2"),
                                               ::testing::HasSubstr("killed by signal 9")));
  }
  // A group that is made later learns of it, too.
  auto late = std::make_shared<ops::FailureState>();
  client_->subscribe("late", {0, 2}, late);
  EXPECT_TRUE(late->has_failed());
}

TEST_F(LauncherClientTest, AGroupMadeLateHearsOfTheFirstLoss) {
  auto early = std::make_shared<ops::FailureState>();
  client_->subscribe("early", {0, 1}, early);
  for (const std::uint32_t rank : {2U, 1U}) {
    launcher_.send(JobMessage::kNewsRankLost,
                   BodyWriter().u32(rank).text("n2").text("killed by signal 9").take());
  }
  ASSERT_TRUE(fails_within(*early, seconds(10)));
  auto late = std::make_shared<ops::FailureState>();
  client_->subscribe("late", {0, 1, 2}, late);
  try {
    late->rethrow_if_failed();
    FAIL() << "has not failed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 2);
  }
}

TEST_F(LauncherClientTest, WithANewWorldWhatFailedBeforeIsForgotten) {
  launcher_.send(JobMessage::kNewsRankLost, BodyWriter().u32(2).text("n2").text("gone").take());
  launcher_.send(JobMessage::kNewsGroupFailed, mismatch_in("g"));
  auto world = std::make_shared<membership::World>();
  world->generation = 2;
  world->members = {0, 1};
  world->hosts = {0, 0};
  world->cut = {0, 4, 8};
  launcher_.send(JobMessage::kToMember, membership::encode(membership::LauncherWord{
                                            membership::NewWorld{world, std::nullopt}, {}}));
  std::promise<void> heard;
  client_->listen([&](const auto& /*word*/) { heard.set_value(); });
  heard.get_future().get();
  auto state = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 1, 2}, state);
  EXPECT_FALSE(state->has_failed());
  client_->listen({});
}

TEST_F(LauncherClientTest, AnAnnouncedFailureKeepsItsType) {
  auto state = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 1, 2}, state);
  launcher_.send(JobMessage::kNewsGroupFailed, mismatch_in("g"));
  ASSERT_TRUE(fails_within(*state, seconds(10)));
  EXPECT_THROW(state->rethrow_if_failed(), MismatchError);
  EXPECT_EQ(message_of(state->error()), "[2] against [3]");
}

TEST_F(LauncherClientTest, UnsubscribedGroupsHearNothing) {
  auto state = std::make_shared<ops::FailureState>();
  auto other = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 2}, state);
  client_->subscribe("other", {0, 2}, other);
  client_->unsubscribe("g");
  launcher_.send(JobMessage::kNewsRankLost, BodyWriter().u32(2).text("n2").text("gone").take());
  ASSERT_TRUE(fails_within(*other, seconds(10)));
  EXPECT_FALSE(state->has_failed());
}

TEST_F(LauncherClientTest, AnnouncesCodeMessageAndPeer) {
  client_->announce("g", std::make_exception_ptr(PeerError("rank 2 went away", 2)));
  const Frame frame = launcher_.receive();
  ASSERT_EQ(frame.type, JobMessage::kGroupFailed);
  BodyReader body(frame.body);
  EXPECT_EQ(body.text(), "g");
  EXPECT_EQ(body.u32(), static_cast<std::uint32_t>(ErrorCode::kPeer));
  EXPECT_EQ(body.text(), "rank 2 went away");
  EXPECT_EQ(body.i64(), 2);
}

TEST_F(LauncherClientTest, AnAnnouncedTimeoutNamesWhoIsMissingEverywhere) {
  client_->announce("g", std::make_exception_ptr(TimeoutError("nobody came", {1, 3})));
  const Frame frame = launcher_.receive();
  auto state = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 1, 2, 3}, state);
  launcher_.send(JobMessage::kNewsGroupFailed, BodyWriter().u32(2).take() + frame.body);
  ASSERT_TRUE(fails_within(*state, seconds(10)));
  try {
    state->rethrow_if_failed();
  } catch (const TimeoutError& error) {
    EXPECT_STREQ(error.what(), "nobody came");
    EXPECT_THAT(error.missing_ranks(), ::testing::ElementsAre(1, 3));
  }
}

TEST_F(LauncherClientTest, TheEndOfTheLauncherFailsEverything) {
  auto state = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 1, 2}, state);
  auto waiting = std::async(std::launch::async,
                            [&] { return client_->get("k", Deadline::after(seconds(60))); });
  (void)launcher_.receive();
  launcher_.hang_up();
  EXPECT_THROW(waiting.get(), PeerError);
  ASSERT_TRUE(fails_within(*state, seconds(10)));
  EXPECT_THROW(state->rethrow_if_failed(), PeerError);
  EXPECT_THROW((void)client_->try_get("k"), PeerError);
  client_->announce("g", state->error());  // must not throw
  client_->report_step(7);
}

TEST_F(LauncherClientTest, TellsHowFarItIs) {
  client_->report_step(7);
  client_->count_operation();
  client_->count_operation();
  client_->report_shard_time(std::chrono::microseconds(1500));
  client_->report_step(8);
  const Frame frame = launcher_.receive();
  EXPECT_EQ(frame.type, JobMessage::kStep);
  BodyReader body(frame.body);
  EXPECT_EQ(body.u32(), 0U);
  EXPECT_EQ(body.u64(), 8U);
  EXPECT_EQ(body.u64(), 2U);
  EXPECT_EQ(body.u64(), 1500U);
  EXPECT_TRUE(body.at_end());
}

// Members of an elastic job have begun to count at different times, each world's training layer
// counts anew, and Python's does not count.
TEST_F(LauncherClientTest, TellsHowFarItIsInAStepOfAnElasticJob) {
  for (int i = 0; i < 5; ++i) client_->count_operation();
  client_->begin_step(3, 41);
  client_->report_step(1);
  client_->count_operation();
  // What is told while these are set is corrected.
  for (bool is_all = false; !is_all;) {
    const Frame frame = launcher_.receive();
    ASSERT_EQ(frame.type, JobMessage::kStep);
    BodyReader body(frame.body);
    const bool is_of_world = body.u32() == 3;
    const bool is_of_step = body.u64() == 41;
    is_all = is_of_world && is_of_step && body.u64() == 1;
  }
}

TEST_F(LauncherClientTest, FramesOfAnotherGenerationAreDropped) {
  auto state = std::make_shared<ops::FailureState>();
  auto other = std::make_shared<ops::FailureState>();
  client_->subscribe("g", {0, 2}, state);
  client_->subscribe("h", {0, 1}, other);
  launcher_.send(JobMessage::kNewsRankLost, BodyWriter().u32(2).text("n2").text("old").take(), 9);
  launcher_.send(JobMessage::kNewsRankLost, BodyWriter().u32(1).text("n1").text("new").take());
  ASSERT_TRUE(fails_within(*other, seconds(10)));
  EXPECT_FALSE(state->has_failed());
}

TEST(LauncherClient, DoesNotWaitForeverForTheWelcome) {
  FakeLauncher launcher;
  EXPECT_THROW(LauncherClient(launcher.rank_fd(), 0, milliseconds(50)), TimeoutError);
}

TEST(LauncherClient, NamesADescriptorThatIsNotOpen) {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(fd);
  try {
    const LauncherClient client(fd, 0, milliseconds(50));
    FAIL() << "the descriptor is closed";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.native_code(), EBADF);
    EXPECT_NE(std::string(error.what()).find("CHAINMAIL_JOB_FD"), std::string::npos);
  }
}

}  // namespace
}  // namespace chainmail::internal
