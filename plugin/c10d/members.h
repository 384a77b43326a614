// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who the ranks of a group are: what they tell each other when they meet, and by which numbers
// messages name them. That is always the rank in the job, so that an operator finds the process.
//
// Thread-safe (pure, but for the environment). None of it communicates.

#pragma once

#include <chainmail/backend.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "plugin/job/env.h"
#include "plugin/job/launcher_client.h"

namespace chainmail::internal {

struct Member {
  std::string node;
  int global_rank = -1;  ///< in the job; -1: not known
};

[[nodiscard]] std::string encode(const Member& member);
/// Throws what BodyReader throws.
[[nodiscard]] Member decode(const std::string& text);

struct PlaceInJob {
  int rank = 0;
  int size = 1;
};

/// Of this process: what the launcher says, else the environment; nothing where neither does.
[[nodiscard]] std::optional<PlaceInJob> place_in_job(const LauncherClient* launcher,
                                                     const Environment& environment);

/// The members' ranks in the job, given what they have told. What a launcher says comes first,
/// since its news are about its own ranks, then BackendOptions::global_ranks; without either, and
/// where ranks of several jobs have told equal numbers, ranks are as in the group.
[[nodiscard]] std::vector<int> choose_ranks(std::vector<int> told, bool is_launchers,
                                            const BackendOptions& options);

/// Throws `absence`, which names the rank of the group that has not come, about its rank in the
/// job; without one where only that rank itself could say it. `rank` of `size` is this one's.
[[noreturn]] void throw_absent(const TimeoutError& absence, const BackendOptions& options,
                               const std::optional<PlaceInJob>& place, int rank, int size);

}  // namespace chainmail::internal
