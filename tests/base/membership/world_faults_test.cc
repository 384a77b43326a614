// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// WorldMachine's rules for unplanned changes, one test each: events in, exact actions out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/base/membership/world_fixture.h"

namespace chainmail::membership {
namespace {

TEST_F(WorldTest, GoesOnWithoutTheDead) {
  options_.first_size = 3;
  begin();
  EXPECT_EQ(die(1),
            "log 3 LOST h1 1 0 2 killed by signal 9\ntimer cool-down 1 1066\n"
            "tell 0 world 2 [0 2]\ntell 2 world 2 [0 2]\ntimer replies 2 600000");
  EXPECT_EQ(say(0, MyState{2, 6}), "");
  EXPECT_EQ(say(2, MyState{2, 7}), "tell 0 resume 2 from 7 of [2]\ntell 2 resume 2 from 7 of [2]");
}

TEST_F(WorldTest, StartsTheHostAgainAfterItsWait) {
  begin();
  die(1);
  say(0, MyState{2, 6});
  EXPECT_EQ(elapse(WorldTimer::kCoolDown, 1), "start 2 on 1");
  say(2, Ready{5});
  EXPECT_TRUE(machine().is_change_pending());
}

TEST_F(WorldTest, CountsNoAnswerOfAnOlderGenerationNorOfTheDead) {
  options_.first_size = 3;
  begin();
  die(1);
  say(0, MyState{2, 9});
  EXPECT_EQ(die(0),
            "log 4 LOST h0 2 0 1 killed by signal 9\ntimer cool-down 0 751\n"
            "tell 2 world 3 [2]\ntimer replies 3 600000");
  EXPECT_EQ(say(2, MyState{2, 6}), "");
  EXPECT_EQ(say(2, MyState{3, 7}), "tell 2 resume 3 from 7 of [2]");
}

TEST_F(WorldTest, FallsBackToTheCheckpointWhenNoHolderLives) {
  begin();
  for (const MemberId id : {0U, 1U}) say(id, Fetched{1, 0, 4});
  read({line(0), line(1), line(2)});
  say(2, Ready{5});
  run();
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 7, false});
  say(1, Held{1, 7, false});
  die(0);
  die(1);
  EXPECT_EQ(say(2, MyState{4, std::nullopt}), "tell 2 resume 4 from 4");
}

TEST_F(WorldTest, HoldsBelowTheMinimumAndGoesOnWithANewcomer) {
  options_.sizes.min = 2;
  begin();
  die(1);
  EXPECT_EQ(say(0, MyState{2, 7}), "timer elastic 2 600000");
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kWaiting);
  EXPECT_EQ(elapse(WorldTimer::kCoolDown, 1), "start 2 on 1");
  EXPECT_EQ(say(2, Ready{5}),
            "event member_pending\ntell 0 world 3 [0 2] from 7 of [0]\n"
            "log 3 ADDED h1 3 7 2 joined\ntell 2 world 3 [0 2] from 7 of [0]");
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 2), "");
}

TEST_F(WorldTest, SavesAndEndsBelowTheMinimum) {
  options_.sizes.min = 2;
  begin();
  die(1);
  say(0, MyState{2, 7});
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 2), "timer elastic 2 600000\ntell 0 save 2");
  EXPECT_EQ(say(0, Saved{7}),
            "event last_will\ntell 0 leave 2\n"
            "end job 125: fewer ranks than the minimum for too long");
  EXPECT_EQ(die(0), "");
}

TEST_F(WorldTest, EndsForNoTimeThatAHostIsPreparedFor) {
  options_.sizes.min = 2;
  options_.has_prepare = true;
  read({line(0), line(1)});
  on(PrepareEnded{0, true, ""});
  say(0, Ready{5});
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 0), "timer elastic 0 600000");
  on(PrepareEnded{1, false, "exited with code 1"});
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kWaiting);
  elapse(WorldTimer::kElasticTimeout, 0);
  EXPECT_NE(machine().phase(), WorldMachine::Phase::kWaiting);
}

TEST_F(WorldTest, EndsBeforeTheFirstWorldForNoTimeThatAProgramTakesToBegin) {
  read({line(0), line(1)});
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 0), "timer elastic 0 600000");
  say(0, Ready{5});
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 0), "timer elastic 0 600000");
  say(1, Ready{5});
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kRunning);
}

TEST_F(WorldTest, LetsAnotherSaveWhenAWriterDiesAndKeepsTheCause) {
  options_.sizes.min = 3;
  options_.first_size = 3;
  begin();
  die(2);
  say(0, MyState{2, 7});
  say(1, MyState{2, 7});
  EXPECT_EQ(elapse(WorldTimer::kElasticTimeout, 2),
            "timer elastic 2 600000\ntell 0 save 2\ntell 1 save 2");
  die(1);
  EXPECT_EQ(say(0, Saved{7}),
            "event last_will\ntell 0 leave 2\n"
            "end job 125: fewer ranks than the minimum for too long");
}

TEST_F(WorldTest, WaitsForHostsWhenAllAreDead) {
  options_.first_size = 1;
  begin();
  EXPECT_EQ(die(0),
            "log 1 LOST h0 1 0 0 killed by signal 9\ntimer cool-down 0 751\n"
            "timer elastic 1 600000");
  EXPECT_EQ(elapse(WorldTimer::kCoolDown, 0), "start 1 on 0");
  EXPECT_EQ(say(1, Ready{5}),
            "event member_pending\nlog 2 ADDED h0 2 0 1 joined\ntell 1 world 2 [1] from 0");
}

TEST_F(WorldTest, EndsAJobWhoseMembersDieThreeTimesInOneStep) {
  options_.first_size = 4;
  begin();
  for (MemberId id = 3; id > 1; --id) {
    die(id);
    for (MemberId left = 0; left < id; ++left) say(left, MyState{5 - id, 7});
  }
  die(1);
  EXPECT_EQ(say(0, MyState{4, 7}), "timer elastic 4 600000\ntell 0 save 4");
  EXPECT_EQ(say(0, Saved{7}),
            "event last_will\ntell 0 leave 4\n"
            "end job 137: members died 3 times in the step after 7: killed by signal 9; each that "
            "died had shards 6 to 7");
}

TEST_F(WorldTest, NamesNoShardsWhereEachThatDiedHadOthers) {
  options_.first_size = 4;
  begin();
  // The shards 0 and 1 of eight, then the last two.
  die(0);
  for (MemberId left = 1; left < 4; ++left) say(left, MyState{2, 7});
  die(3);
  for (MemberId left = 1; left < 3; ++left) say(left, MyState{3, 7});
  die(1);
  say(2, MyState{4, 7});
  EXPECT_EQ(say(2, Saved{7}),
            "event last_will\ntell 2 leave 4\n"
            "end job 137: members died 3 times in the step after 7: killed by signal 9");
}

TEST(ShardSuspects, AreWithAllWhoDiedInTheStep) {
  World two;
  two.members = {0, 1};
  two.cut = {0, 4, 8};
  World three;
  three.members = {0, 1, 2};
  three.cut = {0, 3, 6, 8};
  ShardSuspects suspects;
  EXPECT_EQ(suspects.text(8), "");
  suspects.add(two, 1);
  suspects.add(two, 7);
  suspects.end_round(true, false);
  EXPECT_EQ(suspects.text(8), "; each that died had shards 4 to 7");
  suspects.add(three, 0);
  suspects.add(three, 2);
  suspects.end_round(false, false);
  EXPECT_EQ(suspects.text(8), "; each that died had shards 6 to 7");
  suspects.add(two, 0);
  suspects.end_round(false, false);
  EXPECT_EQ(suspects.text(8), "") << "none is left";
  suspects.add(three, 0);
  suspects.add(three, 2);
  suspects.end_round(true, false);
  EXPECT_EQ(suspects.text(8), "; each that died had some of shards 0 to 7");
  suspects.add(three, 0);
  suspects.add(three, 1);
  suspects.add(three, 2);
  suspects.end_round(true, false);
  EXPECT_EQ(suspects.text(8), "") << "all";
  three.cut = {0, 1, 6, 8};
  suspects.add(three, 0);
  suspects.end_round(true, false);
  EXPECT_EQ(suspects.text(8), "; each that died had shard 0");
  suspects.add(three, 0);
  suspects.end_round(false, true);
  EXPECT_EQ(suspects.text(8), "") << "nobody has lived on";
}

// Nobody has a state after the last one's death, so there is no step to compare; they would begin
// anew for ever.
TEST_F(WorldTest, CountsDeathsThatTakeTheStateAlong) {
  options_.first_size = 1;
  begin();
  for (MemberId id = 0; id < 2; ++id) {
    say(id, Running{machine().world().generation, 1, 0});
    die(id);
    ASSERT_NE(machine().phase(), WorldMachine::Phase::kEnded) << id;
    elapse(WorldTimer::kCoolDown, 0);
    say(id + 1, Ready{5});
    ASSERT_EQ(machine().phase(), WorldMachine::Phase::kRunning) << id;
  }
  EXPECT_THAT(die(2), ::testing::HasSubstr("end job 137: all members died 3 times"));
}

// As a job does that gets on between its accidents, whether or not its launcher hears of the first
// step of a world.
TEST_F(WorldTest, ForgetsDeathsOfAllAfterANewerCheckpoint) {
  for (const bool is_heard : {true, false}) {
    machine_.reset();
    options_.first_size = 1;
    begin();
    for (MemberId id = 0; id < 8; ++id) {
      const Generation generation = machine().world().generation;
      say(id, Fetched{generation, 0, id * 10});
      if (is_heard) say(id, Running{generation, id * 10 + 1, 0});
      die(id);
      ASSERT_NE(machine().phase(), WorldMachine::Phase::kEnded) << id << is_heard;
      elapse(WorldTimer::kCoolDown, 0);
      EXPECT_THAT(say(id + 1, Ready{5}), ::testing::HasSubstr("[" + std::to_string(id + 1) +
                                                              "] from " + std::to_string(id * 10)));
    }
    EXPECT_EQ(machine().phase(), WorldMachine::Phase::kRunning);
  }
}

// A sample that kills whoever computes it.
TEST_F(WorldTest, CountsTheDeathOfTheLastOneInTheStepOfTheOthers) {
  begin();
  run();
  die(1);
  say(0, MyState{2, 7});
  die(0);
  ASSERT_EQ(machine().phase(), WorldMachine::Phase::kWaiting);
  for (const std::uint32_t host : {0U, 1U}) elapse(WorldTimer::kCoolDown, host);
  say(2, Ready{5});
  say(3, Ready{5});
  run(8);
  elapse(WorldTimer::kWindow);
  ASSERT_EQ(machine().phase(), WorldMachine::Phase::kHolding);
  say(2, Held{machine().world().generation, 7, false});
  run();
  die(3);
  EXPECT_THAT(say(2, MyState{machine().world().generation, 7}), ::testing::HasSubstr("save"));
}

TEST_F(WorldTest, ForgetsDeathsAfterACommittedStep) {
  options_.first_size = 4;
  begin();
  for (MemberId id = 3; id > 0; --id) {
    die(id);
    for (MemberId left = 0; left < id; ++left) say(left, MyState{5 - id, 7 + id});
  }
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kRunning);
}

TEST_F(WorldTest, ExpelsWhoStandsStillForTooLong) {
  begin();
  EXPECT_EQ(on(MemberStopped{1, true}), "timer stopped 1 4000");
  EXPECT_EQ(elapse(WorldTimer::kStopped, 1),
            "end 1\nlog 2 LOST h1 1 0 1 stopped by a signal for too long\ntell 0 world 2 [0]\n"
            "timer replies 2 600000");
  // Its slot is free when it has ended.
  EXPECT_EQ(die(1), "event member_left\nstart 2 on 1");
}

TEST_F(WorldTest, KeepsWhoContinues) {
  begin();
  on(MemberStopped{1, true});
  EXPECT_EQ(on(MemberStopped{1, false}), "");
  EXPECT_EQ(elapse(WorldTimer::kStopped, 1), "");
}

TEST_F(WorldTest, LosesAllMembersOfAHost) {
  options_.first_size = 3;
  read({line(0), line(1, 2)});
  for (MemberId id = 0; id < 3; ++id) say(id, Ready{5});
  EXPECT_EQ(on(HostLost{1, "no heartbeat"}),
            "log 3 LOST h1 1 0 2 no heartbeat\nlog 4 LOST h1 1 0 1 no heartbeat\n"
            "timer cool-down 1 1066\ntell 0 world 2 [0]\ntimer replies 2 600000");
}

TEST_F(WorldTest, CollectsAccusationsAndKeepsTheLargestSet) {
  options_.first_size = 4;
  begin();
  EXPECT_EQ(say(0, Accuse{1, 2}), "timer reports 1 50");
  EXPECT_EQ(say(3, Accuse{1, 2}), "");
  EXPECT_EQ(say(2, Accuse{1, 0}), "");
  EXPECT_EQ(elapse(WorldTimer::kReports, 1),
            "end 2\nlog 4 LOST h2 1 0 3 cut off: others cannot reach it, or it cannot reach them\n"
            "timer cool-down 2 1034\n"
            "tell 0 world 2 [0 1 3]\ntell 1 world 2 [0 1 3]\ntell 3 world 2 [0 1 3]\n"
            "timer replies 2 600000");
}

// A host that the launcher hears and the other hosts do not: its ranks start, and cannot be
// reached.
TEST_F(WorldTest, MakesAStepBeforeItTakesInWhoCannotBeReached) {
  options_.first_size = 3;
  begin();
  run();
  const auto give_up = [&](MemberId id) {
    const Generation generation = machine().world().generation;
    say(0, Accuse{generation, id});
    say(1, Accuse{generation, id});
    elapse(WorldTimer::kReports, generation);
    die(id);
    elapse(WorldTimer::kCoolDown, 2);
    say(id + 1, Ready{5});
    say(0, MyState{generation + 1, 7});
    return say(1, MyState{generation + 1, 7});
  };
  EXPECT_THAT(give_up(2), ::testing::HasSubstr("tell 0 world 3 [0 1 3] from 7"));
  EXPECT_THAT(give_up(3), ::testing::HasSubstr("tell 1 resume 4 from 7 of [0 1]"));
  elapse(WorldTimer::kWindow);
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kRunning);
  run(8);
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kHolding);
}

// Others are not to wait for that.
TEST_F(WorldTest, TakesInASpareThoughAWorldHasBrokenBeforeItsFirstStep) {
  options_.sizes = {2, 2, 1};
  options_.spares = 1;
  begin();
  read({line(0), line(1), line(2)});
  say(2, Ready{5});
  die(1);
  EXPECT_THAT(say(0, MyState{2, 7}), ::testing::HasSubstr("tell 2 world 3 [0 2]"));
}

// It takes longer to see a failure than to wait after it.
TEST_F(WorldTest, DoublesAHostsWaitUntilItHasTakenPartInSteps) {
  begin();
  run();
  EXPECT_THAT(die(1), ::testing::HasSubstr("timer cool-down 1 1066"));
  elapse(WorldTimer::kCoolDown, 1);
  say(2, Ready{5});
  say(0, MyState{2, 7});
  elapse(WorldTimer::kSettled, 1);
  EXPECT_THAT(die(2), ::testing::HasSubstr("timer cool-down 1 1886"));
  elapse(WorldTimer::kCoolDown, 1);
  say(3, Ready{5});
  say(0, MyState{4, 7});
  EXPECT_THAT(say(0, Running{4, 8, 0}), ::testing::Not(::testing::HasSubstr("settled")));
  elapse(WorldTimer::kWindow);
  elapse(WorldTimer::kSpacing, 4);
  say(0, Held{4, 9, false});
  EXPECT_THAT(say(0, Running{5, 10, 0}), ::testing::HasSubstr("timer settled 1 5658"));
  elapse(WorldTimer::kSettled, 1);
  EXPECT_THAT(die(3), ::testing::HasSubstr("timer cool-down 1 1066"));
}

// One of two ranks on a host works, the other one dies again and again.
TEST_F(WorldTest, DoublesAHostsWaitAlsoWhereAnotherRankOfItGoesOn) {
  read({line(0), line(1, 2)});
  for (const MemberId id : {0U, 1U, 2U}) say(id, Ready{5});
  const auto lose_one = [&](MemberId id) {
    std::string said = die(id);
    for (const MemberId left : machine().world().members) {
      said += say(left, MyState{machine().world().generation, 7});
    }
    return said + say(0, Running{machine().world().generation, 8, 0});
  };
  run();
  EXPECT_THAT(lose_one(2), ::testing::HasSubstr("timer cool-down 1 1066"));
  EXPECT_THAT(elapse(WorldTimer::kCoolDown, 1), ::testing::HasSubstr("timer settled 1 3198"));
  say(3, Ready{5});
  elapse(WorldTimer::kWindow);
  elapse(WorldTimer::kSpacing, machine().world().generation);
  for (const MemberId id : {0U, 1U}) say(id, Held{machine().world().generation, 9, false});
  say(0, Running{machine().world().generation, 10, 0});
  EXPECT_THAT(lose_one(3), ::testing::HasSubstr("timer cool-down 1 1886"));
  elapse(WorldTimer::kSettled, 1);  // of before, while the host waits
  EXPECT_EQ(machine().hosts()[1].failures, 2U);
  EXPECT_THAT(elapse(WorldTimer::kCoolDown, 1), ::testing::HasSubstr("timer settled 1 5658"));
  elapse(WorldTimer::kSettled, 1);
  EXPECT_EQ(machine().hosts()[1].failures, 0U);
}

TEST_F(WorldTest, DropsAccusationsOfAnOlderWorld) {
  options_.first_size = 3;
  begin();
  say(0, Accuse{1, 1});
  die(1);
  EXPECT_EQ(elapse(WorldTimer::kReports, 1), "");
  EXPECT_EQ(say(0, Accuse{1, 2}), "");
}

TEST_F(WorldTest, PutsASpareInAtOnce) {
  options_.sizes = {2, 2, 1};
  options_.spares = 1;
  begin();
  run();
  EXPECT_EQ(read({line(0), line(1), line(2), line(3)}), "start 2 on 2");
  EXPECT_EQ(say(2, Ready{5}), "event member_pending");
  die(1);
  EXPECT_EQ(say(0, MyState{2, 7}),
            "tell 0 world 3 [0 2] from 7 of [0]\n"
            "log 3 ADDED h2 3 7 2 joined\ntell 2 world 3 [0 2] from 7 of [0]");
}

TEST_F(WorldTest, LetsTheYoungestWaitWhereTheSizeIsNotAllowed) {
  options_.sizes = {2, 4, 2};
  options_.first_size = 4;
  begin();
  die(0);
  say(1, MyState{2, 7});
  say(2, MyState{2, 7});
  EXPECT_EQ(say(3, MyState{2, 7}),
            "log 5 REMOVED h3 3 7 2 waits as a spare: the size is not allowed\n"
            "tell 3 world 3 [1 2] from 7 of [1 2]\n"
            "tell 1 world 3 [1 2] from 7 of [1 2]\ntell 2 world 3 [1 2] from 7 of [1 2]");
}

TEST_F(WorldTest, KeepsWhoHasTheNewestStateWhereTheSizeIsNotAllowed) {
  options_.sizes = {2, 4, 2};
  options_.first_size = 4;
  begin();
  die(0);
  say(1, MyState{2, 6});
  say(2, MyState{2, 6});
  say(3, MyState{2, 7});
  EXPECT_EQ(machine().world().members, (std::vector<MemberId>{1, 3}));
}

TEST_F(WorldTest, AsksNoHostAgainWhoseRankHadNothingToDo) {
  read({line(0), line(1)});
  say(0, Ready{5});
  on(MemberEnded{1, 0, "exited with code 0"});
  EXPECT_EQ(machine().world().members, std::vector<MemberId>{0});
  EXPECT_THAT(elapse(WorldTimer::kCoolDown, 1), ::testing::Not(::testing::HasSubstr("start")));
  // Until its line has come back; base hosts stay.
  read({line(0), line(1), line(2)});
  EXPECT_THAT(on(MemberEnded{2, 0, "exited with code 0"}),
              ::testing::Not(::testing::HasSubstr("timer")));
  read({line(0), line(1)});
  EXPECT_THAT(read({line(0), line(1), line(2)}), ::testing::HasSubstr("start 3"));
}

TEST_F(WorldTest, EndsAfterMoreUnplannedChangesThanAllowed) {
  options_.max_changes = 0;
  begin();
  die(1);
  say(0, MyState{2, 7});
  EXPECT_EQ(say(0, Saved{7}),
            "event last_will\ntell 0 leave 2\nend job 125: more changes than --max-changes allows");
}

}  // namespace
}  // namespace chainmail::membership
