// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs that are small enough for explore().

#pragma once

#include <string>
#include <vector>

#include "tests/base/membership/sim/explore.h"

namespace chainmail::membership::sim {

struct SmallJob {
  std::string name;
  Setup setup;
  Faults faults;
};

/// A job of `ranks` hosts and `steps` steps. Timers elapse at any moment, but for the two that
/// space planned changes, which elapse at once; each rank owns all slices, and the program's
/// function returns at once; hosts start no second member, and peers notice no death themselves
/// unless it says so.
[[nodiscard]] SmallJob small_job(std::uint32_t ranks, StepNumber steps, const Faults& faults,
                                 bool has_restarts = false, bool has_accusations = false);

/// Seconds.
[[nodiscard]] std::vector<SmallJob> short_jobs();
/// Minutes, and some gigabytes.
[[nodiscard]] std::vector<SmallJob> long_jobs();

}  // namespace chainmail::membership::sim
