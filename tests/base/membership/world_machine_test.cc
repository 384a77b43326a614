// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// WorldMachine's rules for hosts and planned changes, one test each: events in, exact actions out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "tests/base/membership/world_fixture.h"

namespace chainmail::membership {
namespace {

TEST_F(WorldTest, RefusesSizesAndShardsThatCannotBe) {
  options_.sizes = {3, 4, 5};
  EXPECT_THROW(WorldMachine(options_, {}), InvalidArgument);
  options_.sizes = {1, 9, 1};
  EXPECT_THROW(WorldMachine(options_, {}), InvalidArgument);
}

TEST_F(WorldTest, BeginsWhenAllOfTheFirstRanksAreReady) {
  EXPECT_EQ(read({line(0), line(1)}), "timer elastic 0 600000\nstart 0 on 0\nstart 1 on 1");
  EXPECT_EQ(say(1, Ready{5}), "event member_pending");
  EXPECT_EQ(say(0, Ready{5}),
            "event member_pending\n"
            "log 0 ADDED h0 1 0 1 first world\ntell 0 world 1 [0 1] from 0\n"
            "log 1 ADDED h1 1 0 2 first world\ntell 1 world 1 [0 1] from 0");
}

TEST_F(WorldTest, BeginsWithoutAFirstRankThatFailed) {
  read({line(0), line(1)});
  say(0, Ready{5});
  EXPECT_EQ(die(1),
            "log 0 REFUSED h1 0 0 0 ended before it had joined: killed by signal 9\n"
            "timer cool-down 1 1066\n"
            "log 1 ADDED h0 1 0 1 first world\ntell 0 world 1 [0] from 0");
}

TEST_F(WorldTest, AddsAHostAtABoundary) {
  begin();
  EXPECT_EQ(read({line(0), line(1), line(2)}), "start 2 on 2");
  EXPECT_EQ(say(2, Ready{5}), "event member_pending\ntimer window 0 2000");
  EXPECT_EQ(elapse(WorldTimer::kWindow), "");  // the first world has only begun
  EXPECT_EQ(say(0, Running{1, 1, 30}), "timer spacing 1 1000\nevent world_changed");
  EXPECT_EQ(elapse(WorldTimer::kSpacing, 1), "tell 0 wanted 1");
  EXPECT_EQ(say(1, Held{1, 7, false}), "timer replies 1 600000");
  EXPECT_EQ(say(0, Held{1, 7, false}),
            "tell 0 world 2 [0 1 2] from 7 of [0 1]\ntell 1 world 2 [0 1 2] from 7 of [0 1]\n"
            "log 2 ADDED h2 2 7 3 joined\ntell 2 world 2 [0 1 2] from 7 of [0 1]");
  EXPECT_EQ(machine().world().cut, (std::vector<ShardNumber>{0, 3, 6, 8}));
}

TEST_F(WorldTest, KeepsItsDistanceFromTheLastPause) {
  begin();
  EXPECT_EQ(say(0, Running{1, 1, 200}), "timer spacing 1 4000\nevent world_changed");
}

TEST_F(WorldTest, KeepsADistanceFromLossesThatDoesNotGrowWithTheirPauses) {
  options_.first_size = 3;
  begin();
  say(0, Running{1, 1, 200});
  die(2);
  say(0, MyState{2, 1});
  say(1, MyState{2, 1});
  EXPECT_EQ(say(0, Running{2, 2, 5000}), "timer spacing 2 1000\nevent world_changed");
}

// Somebody who comes again and again, and whom the others cannot reach.
TEST_F(WorldTest, KeepsItsDistanceFromAPlannedChangeThatFails) {
  begin();
  say(0, Running{1, 1, 30});
  elapse(WorldTimer::kSpacing, 1);
  read({line(0), line(1), line(2)});
  say(2, Ready{5});
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 7, false});
  say(1, Held{1, 7, false});
  say(0, Accuse{2, 2});
  elapse(WorldTimer::kReports, 2);
  say(0, MyState{3, 7});
  say(1, MyState{3, 7});
  EXPECT_EQ(say(0, Running{3, 8, 5000}), "timer spacing 3 100000\nevent world_changed");
}

TEST_F(WorldTest, DrainsWhateverTheDistance) {
  options_.first_size = 1;
  read({line(0), line(1)});
  say(1, Ready{5});
  say(0, Ready{5});
  read({line(0)});
  EXPECT_EQ(elapse(WorldTimer::kWindow), "") << "before the world has made a step";
  EXPECT_EQ(say(0, Running{1, 1, 5000}),
            "timer spacing 1 100000\nevent world_changed\ntell 0 wanted 1");
}

TEST_F(WorldTest, OpensTheGateBeforeAHostsFirstRank) {
  options_.has_prepare = true;
  EXPECT_EQ(read({line(0, 2)}),
            "timer elastic 0 600000\nevent prepare_started\nprepare 0\ntimer prepare 0 3600000");
  EXPECT_EQ(on(PrepareEnded{0, true, ""}), "event prepare_done\nstart 0 on 0\nstart 1 on 0");
}

TEST_F(WorldTest, RefusesAHostWhosePreparationFails) {
  begin();
  options_.has_prepare = true;
  machine_.reset();
  read({line(0), line(1)});
  on(PrepareEnded{0, true, ""});
  EXPECT_EQ(on(PrepareEnded{1, false, "exited with code 1"}),
            "event prepare_failed\nlog 0 REFUSED h1 0 0 0 preparation failed: exited with code 1");
  EXPECT_EQ(read({line(0), line(1)}), "");
  // It is asked again when its line has gone and come back.
  read({line(0), line(2)});
  EXPECT_EQ(read({line(0), line(1), line(2)}),
            "event prepare_started\nprepare 1\ntimer prepare 1 3600000");
}

TEST_F(WorldTest, EndsWhereNoHostCanBePrepared) {
  options_.has_prepare = true;
  read({line(0), line(1)});
  on(PrepareEnded{0, false, "exited with code 1"});
  EXPECT_THAT(on(PrepareEnded{1, false, "exited with code 2"}),
              ::testing::HasSubstr("end job 125: no host of -n could be prepared: preparation "
                                   "failed: exited with code 2"));
}

TEST_F(WorldTest, LeavesItToOthersToEndWhereAPreparedProgramEndsWell) {
  options_.has_prepare = true;
  read({line(0), line(1)});
  on(PrepareEnded{0, false, "exited with code 1"});
  on(PrepareEnded{1, true, ""});
  EXPECT_THAT(on(MemberEnded{0, 0, "exited with code 0"}),
              ::testing::Not(::testing::HasSubstr("end job")));
}

TEST_F(WorldTest, PreparesAHostAnewThatCouldNotBeReached) {
  begin();
  options_.has_prepare = true;
  machine_.reset();
  read({line(0), line(1)});
  on(PrepareEnded{0, true, ""});
  on(PrepareEnded{1, false, "no way there", true});
  EXPECT_EQ(read({line(0), line(1)}), "");
  EXPECT_EQ(elapse(WorldTimer::kCoolDown, 1),
            "event prepare_started\nprepare 1\ntimer prepare 1 3600000");
}

TEST_F(WorldTest, GivesUpAPreparationThatHangsAndOneThatNobodyWants) {
  options_.has_prepare = true;
  options_.first_size = 1;
  read({line(0), line(1), line(2)});
  EXPECT_EQ(elapse(WorldTimer::kPrepare, 1),
            "end preparing 1\nevent prepare_failed\n"
            "log 0 REFUSED h1 0 0 0 preparation failed: took longer than --prepare-timeout");
  EXPECT_EQ(read({line(0), line(1)}), "end preparing 2");
  EXPECT_EQ(elapse(WorldTimer::kPrepare, 2), "");
}

TEST_F(WorldTest, RefusesAnotherFingerprint) {
  begin();
  read({line(0), line(1), line(2)});
  EXPECT_EQ(say(2, Ready{6}),
            "event member_refused\n"
            "log 2 REFUSED h2 1 0 2 another build, option or state than the job's\nend 2");
  EXPECT_EQ(die(2), "event member_left");
}

TEST_F(WorldTest, DrainsAHostAtABoundary) {
  run_with_guest();
  EXPECT_EQ(read({line(0)}), "event member_draining\ntimer drain 1 30000\ntimer window 0 2000");
  EXPECT_EQ(elapse(WorldTimer::kWindow), "tell 0 wanted 1");
  EXPECT_EQ(say(0, Held{1, 3, false}), "timer replies 1 600000");
  EXPECT_EQ(say(1, Held{1, 3, false}),
            "log 2 REMOVED h1 2 3 1 drained\ntell 1 leave 2\ntimer drain 1 30000\n"
            "tell 0 world 2 [0] from 3 of [0]");
  EXPECT_EQ(on(MemberEnded{1, 0, "exited with code 0"}), "event member_left");
}

TEST_F(WorldTest, TakesBackADrain) {
  run_with_guest();
  read({line(0)});
  EXPECT_TRUE(machine().is_change_pending());
  EXPECT_EQ(read({line(0), line(1)}), "");
  EXPECT_FALSE(machine().is_change_pending());
  EXPECT_EQ(elapse(WorldTimer::kWindow), "");
}

TEST_F(WorldTest, ExpelsWhoReachesNoBoundaryToDrainAt) {
  run_with_guest();
  read({line(0)});
  EXPECT_EQ(elapse(WorldTimer::kDrain, 1),
            "end 1\nlog 2 LOST h1 1 1 1 reached no boundary to drain at in time\n"
            "tell 0 world 2 [0]\ntimer replies 2 600000");
}

TEST_F(WorldTest, NeverDrainsBaseHostsByAnEdit) {
  begin();
  run();
  EXPECT_EQ(read({line(0)}),
            "log 2 REFUSED h1 1 1 2 the hosts of -n stay, whatever the hosts file says");
  EXPECT_EQ(read({line(0)}), "");
  EXPECT_EQ(read({}), "log 3 REFUSED - 1 1 2 an empty hosts file drains no host");
}

TEST_F(WorldTest, DrainsABaseHostThatAnnouncesItsEnd) {
  begin();
  run();
  EXPECT_EQ(on(HostLeaving{1}), "event member_draining\ntimer drain 1 30000\ntimer window 0 2000");
}

TEST_F(WorldTest, DrainsTheYoungestOfAHostWithFewerSlots) {
  options_.first_size = 1;
  options_.sizes.max = 5;
  read({line(0), line(1, 4)});
  for (MemberId id = 4; id != ~0U; --id) say(id, Ready{5});
  run();
  EXPECT_EQ(read({line(0), line(1, 2)}),
            "event member_draining\ntimer drain 4 30000\nevent member_draining\n"
            "timer drain 3 30000\ntimer window 0 2000");
}

TEST_F(WorldTest, KeepsADrainingMemberForTheMinimum) {
  options_.sizes.min = 2;
  options_.first_size = 1;
  read({line(0), line(1)});
  say(0, Ready{5});
  say(1, Ready{5});
  run();
  EXPECT_EQ(read({line(0)}), "event member_draining\ntimer drain 1 30000");
  EXPECT_FALSE(machine().is_change_pending());
  EXPECT_EQ(elapse(WorldTimer::kDrain, 1), "");
}

TEST_F(WorldTest, LetsTheLastHolderDrainOneWorldLater) {
  begin();
  read({line(0), line(1), line(2, 2)});
  say(2, Ready{5});
  say(3, Ready{5});
  on(HostLeaving{0});
  on(HostLeaving{1});
  run();
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 5, false});
  EXPECT_EQ(say(1, Held{1, 5, false}),
            "log 2 REMOVED h1 2 5 1 drained\ntell 1 leave 2\ntimer drain 1 30000\n"
            "tell 0 world 2 [0 2 3] from 5 of [0]\n"
            "log 3 ADDED h2 2 5 2 joined\ntell 2 world 2 [0 2 3] from 5 of [0]\n"
            "log 4 ADDED h2 2 5 3 joined\ntell 3 world 2 [0 2 3] from 5 of [0]\n"
            "timer window 0 2000");
}

TEST_F(WorldTest, ChangesTheCutOnly) {
  begin();
  run();
  EXPECT_EQ(on(Rebalance{1, {3, 1}}), "timer window 0 2000");
  elapse(WorldTimer::kWindow);
  say(0, Held{1, 3, false});
  say(1, Held{1, 3, false});
  EXPECT_EQ(machine().world().generation, 2U);
  EXPECT_EQ(machine().world().cut, (std::vector<ShardNumber>{0, 2, 8}));
  EXPECT_EQ(on(Rebalance{1, {1, 1}}), "");
}

TEST_F(WorldTest, MakesNoMorePlannedChangesThanAllowed) {
  options_.max_changes = 0;
  begin();
  run();
  EXPECT_EQ(read({line(0), line(1), line(2)}),
            "log 2 REFUSED h2 1 1 2 no change is left of --max-changes: nobody is taken in or "
            "drained any more");
  EXPECT_EQ(on(HostLeaving{1}), "event member_draining");
  EXPECT_EQ(elapse(WorldTimer::kDrain, 1), "");
  EXPECT_EQ(elapse(WorldTimer::kWindow, 0), "");
}

TEST_F(WorldTest, TakesInWhomItWaitsForWhateverTheLimit) {
  options_.sizes.min = 2;
  options_.max_changes = 1;
  begin();
  run();
  die(1);
  say(0, MyState{2, 1});
  EXPECT_EQ(machine().phase(), WorldMachine::Phase::kWaiting);
  EXPECT_TRUE(machine().has_changes_left());
  EXPECT_EQ(read({line(0), line(1), line(2)}), "start 2 on 2");
}

TEST_F(WorldTest, EndsWhenAllAreFinished) {
  begin();
  EXPECT_EQ(say(0, Held{1, 20, true}), "");
  EXPECT_EQ(say(1, Held{1, 20, true}), "tell 0 leave 1\ntell 1 leave 1\nend job 0: finished");
}

TEST_F(WorldTest, GoesOnFromWhereALauncherDied) {
  resume_ = {12, 5, 3, {"h0", "h7"}};
  EXPECT_EQ(read({line(0), line(1)}),
            "log 12 LOST h0 3 0 1 the launcher ended\nlog 13 LOST h7 3 0 0 the launcher ended\n"
            "timer elastic 3 600000\nstart 5 on 0\nstart 6 on 1");
  say(5, Ready{5});
  EXPECT_EQ(say(6, Ready{5}),
            "event member_pending\nlog 14 ADDED h0 4 0 1 first world\n"
            "tell 5 world 4 [5 6] from 0\nlog 15 ADDED h1 4 0 2 first world\n"
            "tell 6 world 4 [5 6] from 0");
  say(5, Fetched{4, 0, 40});
  EXPECT_EQ(machine().step(), 40U);
}

TEST_F(WorldTest, IgnoresWhatItDoesNotKnow) {
  begin();
  EXPECT_EQ(say(9, Ready{5}), "");
  EXPECT_EQ(die(9), "");
  EXPECT_EQ(say(0, MyState{1, 3}), "");
  EXPECT_EQ(say(0, Saved{3}), "");
  EXPECT_EQ(on(PrepareEnded{0, true, ""}), "");
}

}  // namespace
}  // namespace chainmail::membership
