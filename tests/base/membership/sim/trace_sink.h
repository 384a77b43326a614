// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who listens to the machines of a simulation.

#pragma once

#include <cstdint>

#include "base/membership/member/member_machine.h"
#include "base/membership/world/world_machine.h"

namespace chainmail::membership::sim {

class TraceSink {
 public:
  virtual ~TraceSink() = default;

  virtual void begin_world(const WorldOptions& options, const ResumePoint& resume) = 0;
  virtual void world(const WorldEvent& event, const WorldActions& actions) = 0;
  virtual void begin_member(MemberId id, const MemberOptions& options) = 0;
  /// `state`: a digest of what the member has committed.
  virtual void member(const MemberMachine& machine, const MemberEvent& event,
                      const MemberActions& actions, std::uint64_t state) = 0;
};

}  // namespace chainmail::membership::sim
