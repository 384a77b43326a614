// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Global ranks of a group's members: what the ranks exchange when they join, and the ranks by which
// messages name them. That is always the rank in the job, so that an operator finds the process.
//
// Thread-safe; pure except for reading the environment. Nothing here communicates.

#pragma once

#include <chainmail/backend.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {

class GaveUp;

struct RankIdentity {
  std::string node;
  int global_rank = -1;  ///< in the job; -1: not known
};

[[nodiscard]] std::string encode(const RankIdentity& identity);
/// Throws what BodyReader throws.
[[nodiscard]] RankIdentity decode(const std::string& text);

struct JobRank {
  int rank = 0;
  int size = 1;
};

/// Rank and size of this process in its job, from the launcher or else from the environment;
/// nothing where neither has them.
[[nodiscard]] std::optional<JobRank> job_rank(const LauncherClient* launcher,
                                              const Environment& environment);

/// The members' ranks in the job, given those that they have sent. The launcher's come first, since
/// its failure reports use them, then BackendOptions::global_ranks. Without either, and where ranks
/// of several jobs have sent equal numbers, the ranks are those in the group.
[[nodiscard]] std::vector<int> choose_global_ranks(std::vector<int> told, bool is_launchers,
                                                   const BackendOptions& options);

/// Rethrows `absence`, which names the rank of the group that did not join, with its rank in the
/// job, or without one where only that rank knows it. `rank` of `size` is this one's.
[[noreturn]] void throw_not_joined(const TimeoutError& absence, const BackendOptions& options,
                                   const std::optional<JobRank>& place, int rank, int size);
/// The same of a rank that has joined and given up, as a TimeoutError.
[[noreturn]] void throw_gave_up(const GaveUp& absence, const BackendOptions& options,
                                const std::optional<JobRank>& place, int rank, int size);

}  // namespace chainmail::internal
