// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/member/member_machine.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/membership/member/last_will.h"
#include "tests/base/membership/brief.h"

namespace chainmail::membership {
namespace {

WorldPtr world(Generation generation, std::vector<MemberId> members) {
  auto made = std::make_shared<World>();
  made->generation = generation;
  made->members = std::move(members);
  return made;
}

class MemberTest : public ::testing::Test {
 protected:
  std::string on(const MemberEvent& event) {
    MemberActions actions;
    machine_.on(event, actions);
    return brief(actions);
  }
  std::string told(LauncherMessage message) { return on(Told{std::move(message)}); }
  /// Member 1, rank 1 of generation 1, computes step 1.
  void begin() {
    on(ProgramReady{5});
    told(NewWorld{world(1, {0, 1, 2}), Start{}});
    on(StateFetched{1, 0, 0, false, 0});
  }
  /// ... and has committed `steps`.
  void commit(StepNumber steps) {
    for (StepNumber step = 1; step <= steps; ++step) {
      on(Exchanged{machine_.generation(), *machine_.committed() + 1, false});
      on(StepReturned{});
    }
  }

  MemberMachine machine_{1, {.batch = 16, .grace = std::chrono::milliseconds(100)}};
};

TEST_F(MemberTest, SaysThatItIsReadyAndWaits) {
  EXPECT_EQ(on(ProgramReady{5}), "send ready 5");
  EXPECT_EQ(on(ProgramReady{5}), "");
  EXPECT_EQ(machine_.status(), MemberMachine::Status::kSpare);
}

TEST_F(MemberTest, MakesItsStateInTheFirstWorld) {
  on(ProgramReady{5});
  EXPECT_EQ(told(NewWorld{world(1, {0, 1}), Start{}}), "connect 1 [0 1]\nfetch from 0");
  EXPECT_EQ(machine_.committed(), std::nullopt);
  EXPECT_EQ(on(StateFetched{1, 0, 0, false, 0}), "send fetched 1 at 0\nbegin 1 at sample 0");
}

TEST_F(MemberTest, GoesOnFromTheStepOfItsCheckpoint) {
  on(ProgramReady{5});
  told(NewWorld{world(4, {0, 1}), Start{}});
  EXPECT_EQ(on(StateFetched{4, 7, 112, false, 0}), "send fetched 4 at 7\nbegin 8 at sample 112");
  EXPECT_EQ(machine_.committed(), 7U);
}

TEST_F(MemberTest, FetchesAsANewcomer) {
  on(ProgramReady{5});
  EXPECT_EQ(told(NewWorld{world(4, {0, 2, 1}), Start{7, {0, 2}}}),
            "connect 4 [0 2 1]\nfetch from 7 of [0 2]");
  EXPECT_EQ(on(StateFetched{3, 7, 1, false, 0}), "");  // of another world
  EXPECT_EQ(on(StateFetched{4, 7, 112, false, 9}), "send fetched 4 at 7\nbegin 8 at sample 112");
}

TEST_F(MemberTest, CommitsWhenAllBucketsAreComplete) {
  begin();
  EXPECT_EQ(on(Exchanged{1, 1, false}), "commit 1 to 16");
  EXPECT_EQ(machine_.committed(), 1U);
  EXPECT_EQ(on(StepReturned{}), "begin 2 at sample 16");
}

TEST_F(MemberTest, SaysAsRankZeroThatAWorldRuns) {
  on(ProgramReady{5});
  told(NewWorld{world(1, {1, 2}), Start{}});
  on(StateFetched{1, 0, 0, false, 0});
  EXPECT_EQ(on(Exchanged{1, 1, false}), "commit 1 to 16\nsend running 1 at 1");
  on(StepReturned{});
  EXPECT_EQ(on(Exchanged{1, 2, false}), "commit 2 to 32");
}

TEST_F(MemberTest, PassesTheWishOnInTheLaneAndStopsOnlyWhenTheLaneSaysSo) {
  begin();
  EXPECT_EQ(told(Wanted{1}), "");
  EXPECT_EQ(on(Exchanged{1, 1, false}), "commit 1 to 16");  // it was under way before
  EXPECT_EQ(on(StepReturned{}), "begin 2 at sample 16 wanted");
  EXPECT_EQ(on(Exchanged{1, 2, true}), "commit 2 to 32");
  EXPECT_EQ(on(StepReturned{}), "send held 1 at 2");
}

TEST_F(MemberTest, IsHeldByALaneOfOthers) {
  begin();
  on(Exchanged{1, 1, true});
  EXPECT_EQ(on(StepReturned{}), "send held 1 at 1");
  EXPECT_EQ(told(NewWorld{world(2, {0, 1}), Start{1, {0, 1}}}),
            "fence 1\nconnect 2 [0 1]\nbegin 2 at sample 16");
}

TEST_F(MemberTest, IgnoresAWishForAnOlderWorld) {
  begin();
  told(Wanted{0});
  on(Exchanged{1, 1, false});
  EXPECT_EQ(on(StepReturned{}), "begin 2 at sample 16");
}

TEST_F(MemberTest, FencesTheOldWorldBeforeItSaysItsState) {
  begin();
  commit(3);
  EXPECT_EQ(told(NewWorld{world(2, {0, 1}), std::nullopt}),
            "fence 1\nconnect 2 [0 1]\nsend state 2 at 3");
  EXPECT_EQ(on(Exchanged{1, 4, false}), "");
  EXPECT_EQ(machine_.committed(), 3U);
  EXPECT_EQ(told(Resume{2, {3, {0, 1}}}), "begin 4 at sample 48");
}

TEST_F(MemberTest, FetchesWhatOthersHaveCommitted) {
  begin();
  commit(3);
  told(NewWorld{world(2, {0, 1}), std::nullopt});
  EXPECT_EQ(told(Resume{2, {4, {0}}}), "fetch from 4 of [0]");
  // The state is half overwritten: it counts for nothing if the donor dies now.
  EXPECT_EQ(told(NewWorld{world(3, {1}), std::nullopt}),
            "fence 2\nconnect 3 [1]\nsend state 3 none");
  EXPECT_EQ(told(Resume{2, {4, {0}}}), "");
  EXPECT_EQ(told(Resume{3, {2, {}}}), "fetch from 2");
}

TEST_F(MemberTest, IgnoresAnOldWorld) {
  begin();
  told(NewWorld{world(3, {0, 1}), std::nullopt});
  EXPECT_EQ(told(NewWorld{world(2, {0, 1, 2}), std::nullopt}), "");
}

TEST_F(MemberTest, WaitsAsASpareWhereItIsNotAMember) {
  begin();
  commit(1);
  EXPECT_EQ(told(NewWorld{world(2, {0, 2}), Start{1, {0, 2}}}), "fence 1");
  EXPECT_EQ(machine_.committed(), std::nullopt);
  EXPECT_EQ(told(NewWorld{world(3, {0, 1}), Start{6, {0}}}),
            "connect 3 [0 1]\nfetch from 6 of [0]");
}

TEST_F(MemberTest, LeavesWhenTold) {
  begin();
  on(Exchanged{1, 1, true});
  on(StepReturned{});
  EXPECT_EQ(told(Leave{2}), "exit 0");
  EXPECT_EQ(told(Wanted{1}), "");
}

TEST_F(MemberTest, IsHeldAtTheProgramsEnd) {
  begin();
  on(Exchanged{1, 1, false});
  EXPECT_EQ(on(StepReturned{true}), "send held 1 at 1 finished");
  told(NewWorld{world(2, {0, 1}), std::nullopt});
  EXPECT_EQ(told(Resume{2, {1, {0, 1}}}), "send held 2 at 1 finished");
}

TEST_F(MemberTest, TakesWhetherTheProgramHasFinishedFromTheDonor) {
  on(ProgramReady{5});
  told(NewWorld{world(2, {0, 1}), Start{9, {0}}});
  EXPECT_EQ(on(StateFetched{2, 9, 144, true, 1}), "send fetched 2 at 9\nsend held 2 at 9 finished");
}

TEST_F(MemberTest, BeginsAWorldWhenTheProgramsFunctionHasReturned) {
  begin();
  on(Exchanged{1, 1, false});
  EXPECT_EQ(told(NewWorld{world(2, {0, 1}), std::nullopt}),
            "fence 1\nconnect 2 [0 1]\nsend state 2 at 1");
  EXPECT_EQ(told(Resume{2, {1, {0, 1}}}), "");
  EXPECT_EQ(on(StepReturned{}), "begin 2 at sample 16");
}

TEST_F(MemberTest, RemembersAFunctionThatReturnsBetweenTwoWorlds) {
  begin();
  on(Exchanged{1, 1, false});
  told(NewWorld{world(2, {0, 1}), std::nullopt});
  EXPECT_EQ(on(StepReturned{true}), "");
  EXPECT_EQ(told(Resume{2, {1, {0, 1}}}), "send held 2 at 1 finished");
}

TEST_F(MemberTest, JoinsOthersInWhatFollowsTheirCommit) {
  on(ProgramReady{5});
  told(NewWorld{world(2, {0, 1}), Start{9, {0}}});
  EXPECT_EQ(on(StateFetched{2, 9, 144, false, 1, true}), "send fetched 2 at 9");
  EXPECT_EQ(on(StepReturned{true}), "send held 2 at 9 finished");
}

TEST_F(MemberTest, GoesOnWithTheOthersAfterWhatFollowsTheirCommit) {
  on(ProgramReady{5});
  told(NewWorld{world(2, {0, 1}), Start{9, {0}}});
  on(StateFetched{2, 9, 144, false, 1, true});
  EXPECT_EQ(on(StepReturned{false}), "begin 10 at sample 144");
}

TEST_F(MemberTest, FetchesAgainAfterItBecameASpareWithinTheFunction) {
  begin();
  on(Exchanged{1, 1, false});
  EXPECT_EQ(told(NewWorld{world(2, {0, 2}), Start{1, {0, 2}}}), "fence 1");
  EXPECT_EQ(on(StepReturned{true}), "");
  EXPECT_EQ(told(NewWorld{world(3, {0, 1}), Start{6, {0}}}),
            "connect 3 [0 1]\nfetch from 6 of [0]");
  EXPECT_EQ(on(StateFetched{3, 6, 96, false, 1}), "send fetched 3 at 6\nbegin 7 at sample 96");
}

TEST_F(MemberTest, AccusesAPeerOfItsOwnWorldOnly) {
  begin();
  EXPECT_EQ(on(PeerFailed{1, 2}), "send accuse 2 in 1");
  EXPECT_EQ(on(PeerFailed{0, 2}), "");
}

TEST_F(MemberTest, SavesWhenTold) {
  begin();
  commit(2);
  told(NewWorld{world(2, {0, 1}), std::nullopt});
  EXPECT_EQ(told(Save{1}), "");
  EXPECT_EQ(told(Save{2}), "save state 2");
  EXPECT_EQ(on(StateSaved{}), "send saved 2");
}

TEST_F(MemberTest, EndsTheStepUnderWayBeforeItsLastWill) {
  begin();
  EXPECT_EQ(on(LauncherGone{}), "grace 100");
  EXPECT_EQ(on(Exchanged{1, 1, false}), "commit 1 to 16");
  EXPECT_EQ(on(StepReturned{}), "will 1");
  EXPECT_EQ(on(WriteWill{}), "save state 1");
  EXPECT_EQ(on(StateSaved{}), "");
  EXPECT_EQ(on(GraceElapsed{}), "grace 100");
  EXPECT_EQ(on(GraceElapsed{}), "exit 0");
}

TEST_F(MemberTest, DropsAStepThatOthersCannotEnd) {
  begin();
  commit(1);
  on(LauncherGone{});
  EXPECT_EQ(on(GraceElapsed{}), "grace 100\nwill 1");
  EXPECT_EQ(on(Exchanged{1, 2, false}), "");
  EXPECT_EQ(machine_.committed(), 1U);
}

TEST_F(MemberTest, HasNoWillWithoutAState) {
  on(ProgramReady{5});
  EXPECT_EQ(on(LauncherGone{}), "grace 100\nwill none");
  EXPECT_EQ(on(WriteWill{}), "");
  EXPECT_EQ(told(NewWorld{world(1, {1}), Start{}}), "");
}

TEST(LastWill, IsWrittenByTheFirstWithTheNewestState) {
  const std::array<Will, 4> wills{{{3, std::nullopt}, {4, 7}, {5, 8}, {6, 8}}};
  EXPECT_EQ(choose_writer(wills), 5U);
  EXPECT_EQ(choose_writer(std::span(wills).first(1)), std::nullopt);
}

}  // namespace
}  // namespace chainmail::membership
