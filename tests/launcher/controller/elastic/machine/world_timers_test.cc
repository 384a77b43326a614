// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The clock of a WorldMachine: what replaces what, and what never elapses.

#include "launcher/controller/elastic/machine/world_timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace chainmail::launch {
namespace {

using membership::WorldTimer;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorldTimersTest : public ::testing::Test {
 protected:
  void start(WorldTimer timer, std::uint32_t subject, int ms) {
    timers_.start({timer, subject, milliseconds(ms)});
  }

  asio::io_context io_;
  std::vector<std::uint32_t> elapsed_;  // subjects
  WorldTimers timers_{io_, [this](const auto& event) { elapsed_.push_back(event.subject); }};
};

TEST_F(WorldTimersTest, ElapseInTheirOrder) {
  start(WorldTimer::kDrain, 1, 60);
  start(WorldTimer::kDrain, 2, 20);
  start(WorldTimer::kStopped, 3, 40);
  io_.run();
  EXPECT_THAT(elapsed_, ElementsAre(2, 3, 1));
}

TEST_F(WorldTimersTest, OneOfTheSameKindAndSubjectIsReplaced) {
  start(WorldTimer::kWindow, 0, 1);
  start(WorldTimer::kCoolDown, 0, 30);
  start(WorldTimer::kWindow, 0, 60);
  io_.run();
  EXPECT_EQ(elapsed_.size(), 2U);
}

TEST_F(WorldTimersTest, OneThatHasElapsedAndWaitsForItsTurnIsReplacedToo) {
  start(WorldTimer::kWindow, 0, 1);
  std::this_thread::sleep_for(milliseconds(20));
  start(WorldTimer::kWindow, 0, 20);
  io_.run();
  EXPECT_EQ(elapsed_.size(), 1U);
}

TEST_F(WorldTimersTest, AnEventMayStartItAgain) {
  WorldTimers* self = nullptr;
  int count = 0;
  WorldTimers again(io_, [&](const membership::WorldTimerElapsed& event) {
    if (++count < 3) self->start({event.timer, event.subject, milliseconds(1)});
  });
  self = &again;
  again.start({WorldTimer::kSpacing, 7, milliseconds(1)});
  io_.run();
  EXPECT_EQ(count, 3);
}

TEST_F(WorldTimersTest, ALauncherThatWasHeldUpReadsOnFirst) {
  start(WorldTimer::kStopped, 5, 1);
  std::this_thread::sleep_for(milliseconds(600));
  io_.run_for(milliseconds(50));
  EXPECT_THAT(elapsed_, IsEmpty()) << "it may have continued meanwhile";
  io_.run();
  EXPECT_THAT(elapsed_, ElementsAre(5));
}

TEST_F(WorldTimersTest, NoneElapsesAfterTheStop) {
  start(WorldTimer::kStopped, 5, 1);
  timers_.stop();
  io_.run();
  EXPECT_THAT(elapsed_, IsEmpty());
}

}  // namespace
}  // namespace chainmail::launch
