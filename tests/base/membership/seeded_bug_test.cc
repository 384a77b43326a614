// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The simulator finds each of twelve mistakes in the protocol, so it would find ours. Linked with
// the machines as they are compiled with CHAINMAIL_SEEDED_BUGS.

#include "base/membership/seeded_bug.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "tests/base/membership/sim/explore.h"
#include "tests/base/membership/sim/seeded.h"
#include "tests/base/membership/sim/small_jobs.h"

namespace chainmail::membership::sim {
namespace {

// The rarest of them needs 20,000.
constexpr std::uint64_t kMostSchedules = 500'000;

std::string name_of(SeededBug bug) {
  return std::string(kSeededBugNames.at(static_cast<std::size_t>(bug)));
}

class SeededBugTest : public ::testing::TestWithParam<int> {
 protected:
  SeededBugTest() { seeded_bug = static_cast<SeededBug>(GetParam()); }
  ~SeededBugTest() override { seeded_bug = SeededBug::kNone; }
};

TEST_P(SeededBugTest, IsFoundBySeeds) {
  for (std::uint64_t seed = 0; seed < kMostSchedules; ++seed) {
    const SeededResult result = run_seed(seed);
    if (result.violation.empty()) continue;
    std::cout << name_of(seeded_bug) << ": found after " << seed + 1
              << " schedules: " << result.violation << "\n";
    return;
  }
  FAIL() << name_of(seeded_bug) << " was not found";
}

INSTANTIATE_TEST_SUITE_P(All, SeededBugTest, ::testing::Range(1, 13));

struct Case {
  SeededBug bug;
  SmallJob job;
};

// Two are out of reach of so small jobs: one needs three changes in a row, the other one's job goes
// on without ever making the change.
TEST(SeededBug, IsFoundInEveryStateOfASmallJob) {
  const SmallJob crashes = small_job(3, 2, {.crashes = 2});
  const SmallJob changes = small_job(2, 3, {.newcomers = 1, .drains = 1});
  const SmallJob edits = small_job(2, 2, {.crashes = 1, .newcomers = 1, .drains = 1});
  const std::vector<Case> cases{
      {SeededBug::kNoFence, crashes},
      {SeededBug::kResumeAtMinimum, crashes},
      {SeededBug::kDonorIsRankZero, crashes},
      {SeededBug::kStopOnHearing, changes},
      {SeededBug::kLeaveEarly, edits},
      {SeededBug::kOldSegmentReused, crashes},
      {SeededBug::kPositionMovedEarly, crashes},
      {SeededBug::kNewcomerCountedEarly, crashes},
      {SeededBug::kDeadReplyCounted, crashes},
      {SeededBug::kBaseCheckSkipped, edits},
  };
  for (const Case& one : cases) {
    seeded_bug = one.bug;
    const ExploreResult result = explore(one.job.setup, one.job.faults, 2'000'000);
    std::cout << name_of(one.bug) << ": found after " << result.states << " states of "
              << one.job.name << ": " << result.violation << "\n";
    EXPECT_NE(result.violation, "") << name_of(one.bug);
  }
  seeded_bug = SeededBug::kNone;
}

TEST(SeededBug, NoneIsFoundWithoutOne) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    ASSERT_EQ(run_seed(seed).violation, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace chainmail::membership::sim
