// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The machines under the simulator, in its short form; tests/soak/membership.sh runs the long one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "tests/base/membership/sim/explore.h"
#include "tests/base/membership/sim/seeded.h"
#include "tests/base/membership/sim/small_jobs.h"
#include "tests/base/membership/sim/trace_sink.h"

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
  constexpr std::uint64_t kSeeds = 200;
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const SeededResult first = run_seed(seed);
    const SeededResult second = run_seed(seed);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    hashes.insert(first.trace_hash);
  }
  // Jobs that cannot begin are alike.
  EXPECT_GT(hashes.size(), kSeeds * 3 / 4);
}

// How often what the rules are about has happened.
class Coverage : public TraceSink {
 public:
  void begin_world(const WorldOptions& /*options*/, const ResumePoint& resume) override {
    if (resume.generation != 0) ++counts["resumed"];
  }
  void world(const WorldEvent& event, const WorldActions& actions) override {
    if (std::holds_alternative<HostLost>(event)) ++counts["host lost"];
    for (const WorldAction& action : actions) {
      if (const auto* const tell = std::get_if<Tell>(&action)) {
        std::visit([this](auto& message) { count(message); }, tell->message);
      } else if (const auto* const record = std::get_if<LogRecord>(&action)) {
        ++counts[record->cause.substr(0, 14)];
      } else if (const auto* const end = std::get_if<EndJob>(&action)) {
        ++counts["end: " + end->cause.substr(0, 14)];
      }
    }
  }
  void begin_member(MemberId /*id*/, const MemberOptions& /*options*/) override {}
  void member(const MemberMachine& /*machine*/, const MemberEvent& event,
              const MemberActions& actions, std::uint64_t /*state*/) override {
    const auto* const fetched = std::get_if<StateFetched>(&event);
    if (fetched != nullptr && fetched->step != 0) {
      ++counts[fetched->bytes == 0 ? "from a checkpoint" : "from donors"];
    }
    if (std::any_of(actions.begin(), actions.end(),
                    [](auto& action) { return std::holds_alternative<ReportWill>(action); })) {
      ++counts["last will"];
    }
  }

  std::map<std::string, int> counts;

 private:
  void count(const Wanted& /*message*/) { ++counts["wanted"]; }
  void count(const NewWorld& message) { ++counts[message.start ? "planned" : "unplanned"]; }
  void count(const Resume& /*message*/) { ++counts["resume"]; }
  void count(const Leave& /*message*/) { ++counts["leave"]; }
  void count(const Save& /*message*/) { ++counts["save"]; }
};

TEST(Simulation, ComesToAllThatTheRulesAreAbout) {
  Coverage coverage;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    ASSERT_EQ(run_seed(seed, &coverage).violation, "") << "seed " << seed;
  }
  for (const auto& [what, count] : coverage.counts) std::cout << what << ": " << count << "\n";
  for (const char* const what : {"wanted",
                                 "planned",
                                 "unplanned",
                                 "resume",
                                 "leave",
                                 "save",
                                 "host lost",
                                 "resumed",
                                 "from donors",
                                 "from a checkpoint",
                                 "last will",
                                 "joined",
                                 "drained",
                                 "waits as a spa",
                                 "stopped by a s",
                                 "has not come t",
                                 "cut off: other",
                                 "preparation fa",
                                 "another build,",
                                 "the hosts of -",
                                 "an empty hosts",
                                 "end: finished",
                                 "end: fewer ranks th",
                                 "end: members died 3",
                                 "end: more changes t"}) {
    EXPECT_GT(coverage.counts[what], 2) << what;
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
