// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The machines under the simulator, in its short form; tests/soak/membership.sh runs the long one.

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>

#include "tests/base/membership/sim/explore.h"
#include "tests/base/membership/sim/seeded.h"
#include "tests/base/membership/sim/small_jobs.h"

namespace chainmail::membership::sim {
namespace {

TEST(Simulation, HoldsForSeeds) {
  constexpr std::uint64_t kSeeds = 20'000;
  std::uint64_t events = 0;
  std::uint64_t worlds = 0;
  std::uint64_t steps = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const SeededResult result = run_seed(seed);
    ASSERT_EQ(result.violation, "") << "seed " << seed;
    events += result.events;
    worlds += result.generations;
    steps += result.steps;
  }
  std::cout << kSeeds << " schedules, " << events << " events, " << worlds << " worlds, " << steps
            << " steps\n";
  // The jobs do what they are to be tested with.
  EXPECT_GT(events, 150 * kSeeds);
  EXPECT_GT(worlds, 2 * kSeeds);
  EXPECT_GT(steps, 10 * kSeeds);
}

TEST(Simulation, RepeatsASeedExactly) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const SeededResult first = run_seed(seed);
    const SeededResult second = run_seed(seed);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_NE(first.trace_hash, run_seed(seed + 1).trace_hash);
  }
}

TEST(Simulation, HoldsInEveryStateOfSmallJobs) {
  for (const SmallJob& job : short_jobs()) {
    const ExploreResult result = explore(job.setup, job.faults, 2'000'000);
    std::cout << job.name << ": " << result.states << " states, " << result.transitions
              << " transitions, depth " << result.depth << "\n";
    EXPECT_EQ(result.violation, "") << job.name;
    EXPECT_TRUE(result.is_complete) << job.name;
  }
}

}  // namespace
}  // namespace chainmail::membership::sim
