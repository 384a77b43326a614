// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The trace of a simulated job: the launcher's lines and those of each member, as a real job would
// write them.
//
// One thread.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/membership/trace.h"
#include "tests/base/membership/sim/trace_sink.h"

namespace chainmail::membership {

class TraceFiles : public sim::TraceSink {
 public:
  void begin_world(const WorldOptions& options, const ResumePoint& resume) override {
    launcher.push_back(trace_birth(options, resume));
  }
  void world(const WorldEvent& event, const WorldActions& actions) override {
    launcher.push_back(trace_line(event, actions));
  }
  void begin_member(MemberId id, const MemberOptions& options) override {
    members[id].push_back(trace_birth(id, options));
  }
  void member(const MemberMachine& machine, const MemberEvent& event, const MemberActions& actions,
              std::uint64_t state) override {
    members[machine.id()].push_back(trace_line(machine.id(), event, actions, state));
  }

  std::vector<std::string> launcher;
  std::map<MemberId, std::vector<std::string>> members;
};

}  // namespace chainmail::membership
