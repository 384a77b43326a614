// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ranks and the launcher say to each other, over agents that are no processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::JobMessage;
using test::FakeJob;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ranks 0 and 1 on the first host, rank 2 on the second.
class RankChannelTest : public ::testing::Test {
 protected:
  RankChannelTest() {
    fake_.say_hello(0);
    fake_.say_hello(1);
  }

  static internal::Frame bytes_of(std::uint32_t rank, const std::string& bytes) {
    return make_frame(AgentMessage::kRankBytes, BodyWriter().u32(rank).text(bytes).take());
  }
  void say(std::uint32_t node, std::uint32_t rank, const internal::Frame& frame) {
    channel_.on_bytes(node, bytes_of(rank, internal::encode_frame(frame)));
  }

  FakeJob fake_{{2, 1}};
  std::optional<Blame> blame_;
  std::optional<Failure> failure_;
  std::optional<Progress> progress_;
  RankChannel::Time now_{};
  RankChannel channel_{fake_.job,
                       {[this](std::uint32_t, const Progress& progress) { progress_ = progress; },
                        [this](Blame blame) { blame_ = std::move(blame); },
                        [this](Failure failure) { failure_ = std::move(failure); }},
                       [this] { return now_; }};
};

TEST_F(RankChannelTest, WhoSaysHelloIsWelcomedByItsAgent) {
  EXPECT_FALSE(channel_.has_listeners());
  say(1, 2, {JobMessage::kHello, 0, ""});
  EXPECT_TRUE(channel_.has_listeners());
  EXPECT_THAT(fake_.told(0), IsEmpty());
  const auto told = fake_.told(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(type_of(told[0]), AgentMessage::kWelcomeRank);
  EXPECT_EQ(BodyReader(told[0].body).u32(), 2U);
}

TEST_F(RankChannelTest, NewsGoOnceToEachHostAndNotToWhomTheyConcern) {
  channel_.tell_lost(0, "was killed");
  for (const std::uint32_t node : {0U, 1U}) {
    const auto told = fake_.told(node);
    ASSERT_EQ(told.size(), 1U) << node;
    EXPECT_EQ(type_of(told[0]), AgentMessage::kNews);
    BodyReader body(told[0].body);
    EXPECT_EQ(body.u32(), static_cast<std::uint32_t>(JobMessage::kNewsRankLost));
    EXPECT_EQ(body.u32(), 0U);
    EXPECT_THAT(body.text(), HasSubstr("was killed"));
  }
}

TEST_F(RankChannelTest, NoNewsOnceTheCauseIsKnownOrWhereNoRankRuns) {
  fake_.job.agents[1].all_exited = true;
  channel_.tell_lost(0, "was killed");
  EXPECT_EQ(fake_.told(0).size(), 1U);
  EXPECT_THAT(fake_.told(1), IsEmpty());
  channel_.close_news();
  channel_.tell_lost(1, "was killed");
  EXPECT_THAT(fake_.told(0), IsEmpty());
}

TEST_F(RankChannelTest, AGroupThatFailedNamesTheRankToBlame) {
  const auto failed = [](ErrorCode code, std::int64_t peer) {
    return BodyWriter()
        .text("world")
        .u32(static_cast<std::uint32_t>(code))
        .text("what it says")
        .i64(peer)
        .take();
  };
  say(0, 1, {JobMessage::kGroupFailed, 0, failed(ErrorCode::kTimeout, -1)});
  EXPECT_FALSE(blame_) << "nobody knows who is late";
  say(0, 1, {JobMessage::kGroupFailed, 0, failed(ErrorCode::kPeer, 2)});
  ASSERT_TRUE(blame_);
  EXPECT_EQ(blame_->rank, 2U);
  say(0, 1, {JobMessage::kGroupFailed, 0, failed(ErrorCode::kCuda, -1)});
  EXPECT_EQ(blame_->rank, 1U) << "the rank's own matter";
}

TEST_F(RankChannelTest, ManyFailuresAreTooManyOnlyAtATime) {
  const std::string failed = BodyWriter().text("world").u32(0).text("why").i64(-1).take();
  const auto fail_100_groups = [&] {
    for (int i = 0; i < 100; ++i) say(1, 2, {JobMessage::kGroupFailed, 0, failed});
    return fake_.told(0).size();
  };
  EXPECT_EQ(fail_100_groups(), 64U);
  EXPECT_EQ(fail_100_groups(), 0U);
  channel_.tell_lost(2, "was killed");
  EXPECT_EQ(fake_.told(0).size(), 1U) << "has a count of its own";
  now_ += std::chrono::minutes(1);
  EXPECT_EQ(fail_100_groups(), 64U) << "another failure";
}

TEST_F(RankChannelTest, ProgressIsHandedOnAndLateWordsAreDropped) {
  const std::string steps = BodyWriter().u32(2).u64(3).u64(40).u64(0).take();
  say(1, 2, {JobMessage::kStep, 7, steps});
  EXPECT_FALSE(progress_) << "of another generation";
  say(1, 2, {JobMessage::kStep, 0, steps});
  EXPECT_EQ(progress_, (Progress{3, 40, 2}));
}

TEST_F(RankChannelTest, NonsenseIsTheFailureOfTheRank) {
  channel_.on_bytes(1, bytes_of(2, std::string(64, '\xff')));
  ASSERT_TRUE(failure_);
  EXPECT_EQ(failure_->rank, 2U);
  EXPECT_THAT(failure_->cause, HasSubstr("sent what cannot be understood"));
  EXPECT_THROW(channel_.on_bytes(1, bytes_of(0, "")), SystemError) << "a rank of another host";
}

TEST_F(RankChannelTest, TheStoreKnowsWhoHasEnded) {
  channel_.list_ended(0, "exited with code 0");
  say(1, 2,
      {JobMessage::kStoreTryGet, 0, BodyWriter().u32(9).text(internal::kEndedRanksKey).take()});
  const auto told = fake_.told(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0].body, HasSubstr("exited with code 0"));
}

// Members 0 and 1, each on a host that was added.
class MemberChannelTest : public ::testing::Test {
 protected:
  MemberChannelTest() {
    for (const char* name : {"n0", "n1"}) {
      Host host;
      host.name = name;
      const std::uint32_t node = fake_.job.add_node(host);
      (void)fake_.job.add_rank(node);
      fake_.say_hello(node);
      fake_.job.agents[node].all_exited = false;
    }
  }
  static Options options() {
    Options options;
    options.elastic.max = 4;
    options.grace = std::chrono::milliseconds(700);
    return options;
  }
  void say(std::uint32_t rank, const std::string& body) {
    const internal::Frame frame{JobMessage::kFromMember, 0, body};
    channel_.on_bytes(
        rank, make_frame(AgentMessage::kRankBytes,
                         BodyWriter().u32(rank).text(internal::encode_frame(frame)).take()));
  }

  FakeJob fake_{{1}, options()};  // hosts of its plan are not there yet
  std::vector<std::uint32_t> failed_;
  std::vector<std::string> said_;
  RankChannel channel_{
      fake_.job,
      {[](auto, const auto&) {}, [](auto) {},
       [this](const Failure& failure) { failed_.push_back(*failure.rank); },
       [this](std::uint32_t rank, const membership::MemberMessage& message) {
         const auto& held = std::get<membership::Held>(message);
         said_.push_back(std::to_string(rank) + " held at " + std::to_string(held.step));
       }}};
};

TEST_F(MemberChannelTest, WhatMembersSayIsHandedOn) {
  say(1, membership::encode(membership::MemberMessage(membership::Held{2, 17, false})));
  EXPECT_THAT(said_, ::testing::ElementsAre("1 held at 17"));
  say(0, "nonsense");
  EXPECT_THAT(failed_, ::testing::ElementsAre(0U)) << "the other one is heard on";
  EXPECT_EQ(said_.size(), 1U);
}

TEST_F(MemberChannelTest, MembersAreToldWhileTheyAreThere) {
  const membership::LauncherWord word{membership::Wanted{3}, {}};
  channel_.tell_member(1, word);
  const auto told = fake_.told(1);
  ASSERT_EQ(told.size(), 1U);
  BodyReader body(told[0].body);
  EXPECT_EQ(body.u32(), 1U);
  internal::FrameReader reader;
  const std::string bytes = body.text();
  reader.append(std::as_bytes(std::span(bytes)));
  const auto frame = reader.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->type, JobMessage::kToMember);
  const auto read = membership::decode_launcher_word(frame->body);
  EXPECT_EQ(std::get<membership::Wanted>(read.message).generation, 3U);
  fake_.job.ranks[1].is_gone = true;
  channel_.tell_member(1, word);
  EXPECT_THAT(fake_.told(1), IsEmpty());
}

TEST_F(MemberChannelTest, TheTableGoesToOneHostAndSaysThatTheJobIsElastic) {
  channel_.send_table_to(1);
  EXPECT_THAT(fake_.told(0), IsEmpty());
  EXPECT_THAT(fake_.told(1), ::testing::Not(IsEmpty()));
}

// A job of months loses any number of members, and all are looked for by whoever waits.
TEST_F(MemberChannelTest, TheListOfTheEndedIsThatOfTheLastTwoWorlds) {
  const auto listed = [this] {
    const internal::Frame asks{JobMessage::kStoreTryGet, 0,
                               BodyWriter().u32(9).text(internal::kEndedRanksKey).take()};
    channel_.on_bytes(1, make_frame(AgentMessage::kRankBytes,
                                    BodyWriter().u32(1).text(internal::encode_frame(asks)).take()));
    return fake_.told(1).at(0).body;
  };
  channel_.list_ended(0, "exited with code 3");
  channel_.forget_world(1);
  EXPECT_THAT(listed(), HasSubstr("exited with code 3")) << "some may be in that world";
  channel_.list_ended(1, "exited with code 4");
  channel_.forget_world(2);
  EXPECT_THAT(listed(), ::testing::AllOf(HasSubstr("exited with code 4"),
                                         ::testing::Not(HasSubstr("exited with code 3"))));
  channel_.forget_world(3);
  EXPECT_THAT(listed(), ::testing::Not(HasSubstr("exited with code")));
}

TEST_F(MemberChannelTest, TheListOfTheEndedStaysShortWhereTheWorldStays) {
  for (int i = 0; i < 20'000; ++i) channel_.list_ended(0, "exited with code 3");
  channel_.list_ended(1, "exited with code 4");
  channel_.forget_world(1);
  const internal::Frame asks{JobMessage::kStoreTryGet, 0,
                             BodyWriter().u32(9).text(internal::kEndedRanksKey).take()};
  channel_.on_bytes(1, make_frame(AgentMessage::kRankBytes,
                                  BodyWriter().u32(1).text(internal::encode_frame(asks)).take()));
  const std::string listed = fake_.told(1).at(0).body;
  EXPECT_THAT(listed, HasSubstr("exited with code 4"));
  EXPECT_LT(listed.size(), std::size_t{140} << 10);
}

TEST_F(MemberChannelTest, TheTableHasNoRoomForMembersThatAreGone) {
  const auto bytes_of_table = [this] {
    channel_.send_table_to(1);
    std::size_t bytes = 0;
    for (const internal::Frame& frame : fake_.told(1)) bytes += frame.body.size();
    return bytes;
  };
  const std::size_t before = bytes_of_table();
  for (int i = 0; i < 1000; ++i) {
    Host host;
    host.name = "n9";
    const std::uint32_t node = fake_.job.add_node(host);
    fake_.job.ranks[fake_.job.add_rank(node)].is_gone = true;
  }
  EXPECT_LT(bytes_of_table(), before + 100);
}

TEST_F(MemberChannelTest, NewsOfLossesNeverEnd) {
  for (int i = 0; i < 100; ++i) channel_.tell_lost(0, "was killed");
  EXPECT_EQ(fake_.told(1).size(), 100U);
}

}  // namespace
}  // namespace chainmail::launch
