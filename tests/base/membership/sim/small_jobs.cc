// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/sim/small_jobs.h"

namespace chainmail::membership::sim {
namespace {

std::uint32_t bit(WorldTimer timer) { return 1U << static_cast<std::uint32_t>(timer); }

std::string name_of(std::uint32_t ranks, StepNumber steps, const Faults& faults) {
  std::string name = std::to_string(ranks) + " ranks, " + std::to_string(steps) + " steps";
  const auto add = [&](std::uint8_t count, const char* what) {
    if (count != 0) name += ", " + std::to_string(count) + " " + what;
  };
  add(faults.crashes, "crashes");
  add(faults.stops, "stops");
  add(faults.cuts, "cuts");
  add(faults.newcomers, "newcomers");
  add(faults.drains, "drains");
  add(faults.launcher, "deaths of the launcher");
  return name;
}

}  // namespace

SmallJob small_job(std::uint32_t ranks, StepNumber steps, const Faults& faults, bool has_restarts,
                   bool has_accusations) {
  SmallJob job{name_of(ranks, steps, faults), {}, faults};
  if (has_restarts) job.name += ", restarts";
  if (has_accusations) job.name += ", accusations";
  Setup& setup = job.setup;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    setup.hosts.push_back({"host " + std::to_string(rank), 1});
  }
  setup.options.first_size = ranks;
  setup.options.sizes.max = ranks + faults.newcomers;
  setup.options.shards = setup.options.sizes.max;
  setup.shape.shards = setup.options.shards;
  setup.shape.has_slices = false;
  setup.last_step = steps;
  setup.returns_at_once = true;
  setup.has_time = false;
  setup.drops_at_crash = true;
  setup.has_accusations = has_accusations;
  // Back-off has tests of its own. A drain or an answer that takes too long is an expulsion, which
  // none of the members here deserves.
  setup.ignored_timers =
      bit(WorldTimer::kDrain) | bit(WorldTimer::kReplies) | bit(WorldTimer::kSettled);
  // The messages before and after them take any time already.
  setup.immediate_timers = bit(WorldTimer::kWindow) | bit(WorldTimer::kSpacing);
  if (!has_restarts) setup.ignored_timers |= bit(WorldTimer::kCoolDown);
  return job;
}

std::vector<SmallJob> short_jobs() {
  return {
      small_job(2, 2, {}),
      small_job(2, 2, {.crashes = 1}, true, true),
      small_job(2, 2, {.newcomers = 1}),
      small_job(2, 2, {.cuts = 1}, true, true),
      small_job(2, 2, {.crashes = 1, .launcher = 1}, false, true),
      small_job(3, 1, {.crashes = 1}),
      small_job(3, 2, {.crashes = 1}),
      small_job(3, 2, {.crashes = 2}),
      small_job(2, 3, {.newcomers = 1, .drains = 1}),
  };
}

std::vector<SmallJob> long_jobs() {
  return {
      small_job(2, 2, {.crashes = 1, .stops = 1}, true, true),
      small_job(3, 2, {.stops = 1}),
      small_job(2, 2, {.crashes = 1, .newcomers = 1, .drains = 1}, true),
      small_job(3, 1, {.cuts = 1}, false, true),
      small_job(3, 2, {.crashes = 1, .newcomers = 1}),
      small_job(3, 2, {.crashes = 2, .newcomers = 1}),
  };
}

}  // namespace chainmail::membership::sim
