// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A launcher's machine for tests, with the events that most of them begin with.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "tests/base/membership/brief.h"

namespace chainmail::membership {

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
  /// A base rank on h0 and one on h1 that may be drained have made a step.
  void run_with_guest() {
    options_.first_size = 1;
    read({line(0), line(1)});
    say(1, Ready{5});
    say(0, Ready{5});
    run();
  }
  static HostLine line(std::uint32_t host, std::uint32_t slots = 1) {
    return {"h" + std::to_string(host), slots};
  }

  WorldOptions options_;
  ResumePoint resume_;
  std::unique_ptr<WorldMachine> machine_;
};

}  // namespace chainmail::membership
