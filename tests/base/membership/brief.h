// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Actions of the machines as short texts, for tests that list them exactly: one line per action.
//
// Pure functions; any thread.

#pragma once

#include <string>

#include "base/membership/member/member_events.h"
#include "base/membership/world/world_events.h"

namespace chainmail::membership {

/// "tell 1 world 2 [0 1] cut [0 4 8] from 7 of [0]", "timer window 2000", "log 3 LOST h1 ...".
[[nodiscard]] std::string brief(const WorldActions& actions);
/// "fence 1", "connect 2 [0 1]", "send state 2 at 7", "begin 8 at sample 112 wanted".
[[nodiscard]] std::string brief(const MemberActions& actions);

}  // namespace chainmail::membership
