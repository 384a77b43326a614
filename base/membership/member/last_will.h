// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who writes the state when the launcher is gone: one member per host, chosen by its agent.
//
// Pure function; any thread.

#pragma once

#include <optional>
#include <span>

#include "base/membership/types.h"

namespace chainmail::membership {

/// What a member of the host answered to LauncherGone.
struct Will {
  MemberId member = 0;
  std::optional<StepNumber> step;
};

/// The first of those with the newest state; nobody where none has a state.
[[nodiscard]] inline std::optional<MemberId> choose_writer(std::span<const Will> wills) {
  const Will* best = nullptr;
  for (const Will& will : wills) {
    if (will.step && (best == nullptr || *will.step > *best->step)) best = &will;
  }
  return best == nullptr ? std::nullopt : std::optional(best->member);
}

}  // namespace chainmail::membership
