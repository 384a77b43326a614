// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One schedule per seed: the seed decides the job, its options, the order of events and the faults.
//
// Any thread; a run shares nothing.

#pragma once

#include <cstdint>
#include <string>

#include "tests/base/membership/sim/simulation.h"

namespace chainmail::membership::sim {

struct SeededResult {
  std::string violation;         ///< empty: none
  std::uint64_t trace_hash = 0;  ///< of all that happened; the same seed gives the same
  std::uint32_t events = 0;
  Generation generations = 0;
  StepNumber steps = 0;
  bool has_ended = false;  ///< by a named end
};

/// Some 200 events with up to six faults, then without any until the job has committed a step in a
/// world that nothing threatens, or has ended.
[[nodiscard]] SeededResult run_seed(std::uint64_t seed, TraceSink* trace = nullptr);

}  // namespace chainmail::membership::sim
