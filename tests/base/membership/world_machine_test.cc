// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One test per rule of WorldMachine: events in, exact actions out.

#include "base/membership/world/world_machine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/base/membership/brief.h"

namespace chainmail::membership {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Hosts h0, h1, ... of one slot each, and the launcher that runs them.
class WorldTest : public ::testing::Test {
 protected:
  WorldTest() {
    options_.sizes = {1, 4, 1};
    options_.first_size = 2;
    options_.shards = 8;
  }

  std::string on(const WorldEvent& event) {
    WorldActions actions;
    machine().on(event, actions);
    return brief(actions);
  }
  WorldMachine& machine() {
    if (!machine_) machine_ = std::make_unique<WorldMachine>(options_, resume_);
    return *machine_;
  }
  std::string read(std::vector<HostLine> lines) { return on(HostsRead{std::move(lines)}); }
  std::string say(MemberId from, MemberMessage message) {
    return on(MemberSaid{from, std::move(message)});
  }
  std::string elapse(WorldTimer timer, std::uint32_t subject = 0) {
    return on(WorldTimerElapsed{timer, subject});
  }
  std::string die(MemberId member) { return on(MemberEnded{member, 137, "killed by signal 9"}); }

  /// Ranks 0 and 1 on h0 and h1 have begun.
  void begin() {
    std::vector<HostLine> lines;
    for (std::uint32_t i = 0; i < options_.first_size; ++i) lines.push_back(line(i));
    read(lines);
    for (MemberId id = 0; id < options_.first_size; ++id) say(id, Ready{5});
    ASSERT_EQ(machine().phase(), WorldMachine::Phase::kRunning);
  }
  /// ... and nothing holds the next change up but its window.
  void run(StepNumber step = 1) {
    say(machine().world().members.front(), Running{machine().world().generation, step, 0});
    elapse(WorldTimer::kSpacing, machine().world().generation);
  }
  static HostLine line(std::uint32_t host, std::uint32_t slots = 1) {
    return {"h" + std::to_string(host), slots};
  }

  WorldOptions options_;
  ResumePoint resume_;
  std::unique_ptr<WorldMachine> machine_;
};

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
            "timer cool-down 1 1066\ntimer settled 1 3198\n"
            "log 1 ADDED h0 1 0 1 first world\ntell 0 world 1 [0] from 0");
}

TEST_F(WorldTest, AddsAHostAtABoundary) {
  begin();
  EXPECT_EQ(read({line(0), line(1), line(2)}), "start 2 on 2");
  EXPECT_EQ(say(2, Ready{5}), "event member_pending\ntimer window 0 2000");
  EXPECT_EQ(elapse(WorldTimer::kWindow), "");  // the first world has only begun
  EXPECT_EQ(say(0, Running{1, 1, 30}), "timer spacing 1 1000\nevent world_changed");
  EXPECT_EQ(elapse(WorldTimer::kSpacing, 1), "tell 0 wanted 1");
  EXPECT_EQ(say(1, Held{1, 7, false}), "");
  EXPECT_EQ(say(0, Held{1, 7, false}),
            "tell 0 world 2 [0 1 2] from 7 of [0 1]\ntell 1 world 2 [0 1 2] from 7 of [0 1]\n"
            "log 2 ADDED h2 2 7 3 joined\ntell 2 world 2 [0 1 2] from 7 of [0 1]");
  EXPECT_EQ(machine().world().cut, (std::vector<ShardNumber>{0, 3, 6, 8}));
}

TEST_F(WorldTest, KeepsItsDistanceFromTheLastPause) {
  begin();
  EXPECT_EQ(say(0, Running{1, 1, 200}), "timer spacing 1 4000\nevent world_changed");
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
  options_.first_size = 1;
  read({line(0), line(1)});
  say(1, Ready{5});
  say(0, Ready{5});
  run();
  EXPECT_EQ(read({line(0)}), "event member_draining\ntimer drain 1 30000\ntimer window 0 2000");
  EXPECT_EQ(elapse(WorldTimer::kWindow), "tell 0 wanted 1");
  EXPECT_EQ(say(0, Held{1, 3, false}), "");
  EXPECT_EQ(say(1, Held{1, 3, false}),
            "log 2 REMOVED h1 2 3 1 drained\ntell 1 leave 2\ntell 0 world 2 [0] from 3 of [0]");
  EXPECT_EQ(on(MemberEnded{1, 0, "exited with code 0"}), "event member_left");
}

TEST_F(WorldTest, TakesBackADrain) {
  options_.first_size = 1;
  read({line(0), line(1)});
  say(1, Ready{5});
  say(0, Ready{5});
  run();
  read({line(0)});
  EXPECT_TRUE(machine().is_change_pending());
  EXPECT_EQ(read({line(0), line(1)}), "");
  EXPECT_FALSE(machine().is_change_pending());
  EXPECT_EQ(elapse(WorldTimer::kWindow), "");
}

TEST_F(WorldTest, ExpelsWhoReachesNoBoundaryToDrainAt) {
  options_.first_size = 1;
  read({line(0), line(1)});
  say(1, Ready{5});
  say(0, Ready{5});
  run();
  read({line(0)});
  EXPECT_EQ(elapse(WorldTimer::kDrain, 1),
            "end 1\nlog 2 LOST h1 1 1 1 reached no boundary to drain at in time\n"
            "tell 0 world 2 [0]");
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
            "log 2 REMOVED h1 2 5 1 drained\ntell 1 leave 2\n"
            "tell 0 world 2 [0 2 3] from 5 of [0]\n"
            "log 3 ADDED h2 2 5 2 joined\ntell 2 world 2 [0 2 3] from 5 of [0]\n"
            "log 4 ADDED h2 2 5 3 joined\ntell 3 world 2 [0 2 3] from 5 of [0]\n"
            "timer window 0 2000");
}

TEST_F(WorldTest, GoesOnWithoutTheDead) {
  options_.first_size = 3;
  begin();
  EXPECT_EQ(die(1),
            "log 3 LOST h1 1 0 2 killed by signal 9\ntimer cool-down 1 1066\ntimer settled 1 3198\n"
            "tell 0 world 2 [0 2]\ntell 2 world 2 [0 2]");
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
            "timer settled 0 2253\ntell 2 world 3 [2]");
  EXPECT_EQ(say(2, MyState{2, 6}), "");
  EXPECT_EQ(say(2, MyState{3, 7}), "tell 2 resume 3 from 7 of [2]");
}

TEST_F(WorldTest, FallsBackToTheCheckpointWhenNoHolderLives) {
  begin();
  on(CheckpointWritten{4});
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
            "timer settled 0 2253\ntimer elastic 1 600000");
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
            "end job 137: members died 3 times in the step after 7: killed by signal 9");
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
            "end 1\nlog 2 LOST h1 1 0 1 stopped by a signal for too long\ntell 0 world 2 [0]");
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
            "timer cool-down 1 1066\ntimer settled 1 3198\ntell 0 world 2 [0]");
}

TEST_F(WorldTest, CollectsAccusationsAndKeepsTheLargestSet) {
  options_.first_size = 4;
  begin();
  EXPECT_EQ(say(0, Accuse{1, 2}), "timer reports 1 50");
  EXPECT_EQ(say(3, Accuse{1, 2}), "");
  EXPECT_EQ(say(2, Accuse{1, 0}), "");
  EXPECT_EQ(elapse(WorldTimer::kReports, 1),
            "end 2\nlog 4 LOST h2 1 0 3 cut off: others cannot reach it, or it cannot reach them\n"
            "tell 0 world 2 [0 1 3]\ntell 1 world 2 [0 1 3]\ntell 3 world 2 [0 1 3]");
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
  read({line(0), line(1), line(2)});
  EXPECT_EQ(say(2, Ready{5}), "event member_pending");
}

TEST_F(WorldTest, EndsAfterMoreUnplannedChangesThanAllowed) {
  options_.max_changes = 0;
  begin();
  die(1);
  say(0, MyState{2, 7});
  EXPECT_EQ(say(0, Saved{7}),
            "event last_will\ntell 0 leave 2\nend job 125: more changes than --max-changes allows");
}

TEST_F(WorldTest, EndsWhenAllAreFinished) {
  begin();
  EXPECT_EQ(say(0, Held{1, 20, true}), "");
  EXPECT_EQ(say(1, Held{1, 20, true}), "tell 0 leave 1\ntell 1 leave 1\nend job 0: finished");
}

TEST_F(WorldTest, GoesOnFromWhereALauncherDied) {
  resume_ = {12, 5, 3, 40, {"h0", "h7"}};
  EXPECT_EQ(read({line(0), line(1)}),
            "log 12 LOST h0 3 40 1 the launcher ended\nlog 13 LOST h7 3 40 0 the launcher ended\n"
            "timer elastic 3 600000\nstart 5 on 0\nstart 6 on 1");
  say(5, Ready{5});
  EXPECT_EQ(say(6, Ready{5}),
            "event member_pending\nlog 14 ADDED h0 4 40 1 first world\n"
            "tell 5 world 4 [5 6] from 40\nlog 15 ADDED h1 4 40 2 first world\n"
            "tell 6 world 4 [5 6] from 40");
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
