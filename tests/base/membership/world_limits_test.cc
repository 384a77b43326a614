// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// WorldMachine's rules for members that do not come, answer or end, one test each: events in, exact
// actions out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/membership/world_fixture.h"

namespace chainmail::membership {
namespace {

using ::testing::HasSubstr;

// Between worlds no collective has a time limit.
TEST_F(WorldTest, ExpelsWhoDoesNotSayWhatStateItHas) {
  options_.first_size = 3;
  begin();
  EXPECT_THAT(die(2), HasSubstr("timer replies 2 600000"));
  say(0, MyState{2, 7});
  EXPECT_EQ(elapse(WorldTimer::kReplies, 1), "") << "of another world";
  EXPECT_EQ(
      elapse(WorldTimer::kReplies, 2),
      "end 1\nlog 4 LOST h1 2 0 1 has not come to the end of its step within 600 s, while the "
      "next world waited for it\ntimer cool-down 1 1066\ntell 0 world 3 [0]\n"
      "timer replies 3 600000");
  EXPECT_EQ(say(0, MyState{3, 7}), "tell 0 resume 3 from 7 of [0]");
  EXPECT_EQ(elapse(WorldTimer::kReplies, 3), "");
}

TEST_F(WorldTest, BeginsAnewWhereTheOnlyOneLeftIsSilent) {
  begin();
  die(1);
  EXPECT_EQ(
      elapse(WorldTimer::kReplies, 2),
      "end 0\nlog 3 LOST h0 2 0 0 has not come to the end of its step within 600 s, while the "
      "next world waited for it\ntimer cool-down 0 751\ntimer elastic 2 600000");
}

TEST_F(WorldTest, ExpelsWhoDoesNotComeToTheBoundaryWhereOthersWait) {
  options_.replies = std::chrono::seconds(5);
  begin();
  run();
  read({line(0), line(1), line(2)});
  say(2, Ready{5});
  elapse(WorldTimer::kWindow);
  ASSERT_EQ(machine().phase(), WorldMachine::Phase::kHolding);
  EXPECT_EQ(say(0, Held{1, 7, false}), "timer replies 1 5000");
  EXPECT_THAT(elapse(WorldTimer::kReplies, 1),
              HasSubstr("end 1\nlog 2 LOST h1 1 7 1 has not come"));
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kCollecting);
}

TEST_F(WorldTest, LeavesWhoIsStoppedToThatLimit) {
  begin();
  die(1);
  on(MemberStopped{0, true});
  EXPECT_EQ(elapse(WorldTimer::kReplies, 2), "timer replies 2 4000");
  // It goes on before that one, and says no more than before.
  on(MemberStopped{0, false});
  EXPECT_THAT(elapse(WorldTimer::kReplies, 2),
              HasSubstr("end 0\nlog 3 LOST h0 2 0 0 has not come"));
}

TEST_F(WorldTest, WaitsForWhateverComesAfterTheLastStep) {
  begin();
  run();
  EXPECT_EQ(say(0, Held{1, 7, true}), "");
  EXPECT_THAT(say(1, Held{1, 7, true}), HasSubstr("end job 0"));
}

TEST_F(WorldTest, CountsTheSilentAsCrashed) {
  options_.first_size = 3;
  options_.max_deaths_at_step = 1;
  begin();
  on(HostLost{2, "no heartbeat"});
  say(0, MyState{2, 7});
  elapse(WorldTimer::kReplies, 2);
  EXPECT_THAT(say(0, MyState{3, 7}), HasSubstr("tell 0 save 3"));
}

TEST_F(WorldTest, WaitsForADrainAgainAfterALoss) {
  options_.first_size = 2;
  read({line(0), line(1), line(2)});
  for (const MemberId id : {2U, 0U, 1U}) say(id, Ready{5});
  run();
  read({line(0), line(1)});
  die(1);
  EXPECT_EQ(elapse(WorldTimer::kDrain, 2), "timer drain 2 30000");
  say(0, MyState{2, 7});
  say(2, MyState{2, 7});
  EXPECT_THAT(elapse(WorldTimer::kDrain, 2), ::testing::AnyOf("", HasSubstr("end 2")));
}

TEST_F(WorldTest, EndsWhoWasToldToLeaveAndDoesNot) {
  run_with_guest();
  read({line(0)});
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 3, false});
  EXPECT_THAT(say(1, Held{1, 3, false}), HasSubstr("tell 1 leave 2\ntimer drain 1 30000"));
  read({line(0), line(1)});
  EXPECT_EQ(elapse(WorldTimer::kDrain, 1), "end 1");
  EXPECT_THAT(die(1), HasSubstr("start 2 on 1"));
}

// What takes hosts away takes their lines away, too.
TEST_F(WorldTest, DrainsABaseHostThatAnnouncesItsEndWithoutItsLine) {
  begin();
  run();
  on(HostLeaving{1});
  read({line(0)});
  EXPECT_EQ(machine().hosts()[1].slots(), 0U);
  EXPECT_TRUE(machine().is_change_pending());
  read({line(0), line(1)});
  EXPECT_EQ(machine().hosts()[1].slots(), 1U) << "it has come back";
}

TEST_F(WorldTest, CountsNoTimeWithoutEnoughHostsAsThePauseOfAChange) {
  options_.sizes.min = 2;
  begin();
  run();
  read({line(0), line(1), line(2)});
  say(2, Ready{5});
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 7, false});
  say(1, Held{1, 7, false});
  die(1);
  die(2);
  say(0, MyState{machine().world().generation, 7});
  ASSERT_EQ(machine().phase(), WorldMachine::Phase::kWaiting);
  elapse(WorldTimer::kCoolDown, 1);
  say(3, Ready{5});
  const Generation generation = machine().world().generation;
  EXPECT_THAT(say(0, Running{generation, 8, 540'000}),
              HasSubstr("timer spacing " + std::to_string(generation) + " 1000"));
}

}  // namespace
}  // namespace chainmail::membership
