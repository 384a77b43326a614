// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure/measure.h"

#include <algorithm>
#include <array>

#include "tools/bench/machine/wire.h"

namespace chainmail::bench {
namespace {

// What one contestant's rounds add up to.
struct Sums {
  TimingCollector times;
  double cpu_s = 0.0;
  double wall_s = 0.0;
  double wire_bytes = 0.0;
};

void run_round(const Case& what, Contestant& contestant, Control& control, Sums& sums) {
  control.barrier();
  const std::uint64_t sent_before = bytes_sent();
  Sample sample = contestant.time(what);
  const double calls =
      static_cast<double>(what.repeats.batch) * (what.repeats.samples + what.repeats.warmup);
  std::array<double, 3> numbers = {sample.cpu_s, sample.wall_s,
                                   static_cast<double>(bytes_sent() - sent_before) / calls};
  control.maximum(sample.us);
  control.maximum(numbers);
  sums.times.add_round(std::move(sample.us));
  sums.cpu_s += numbers[0];
  sums.wall_s += numbers[1];
  sums.wire_bytes = std::max(sums.wire_bytes, numbers[2]);
}

}  // namespace

std::vector<Result> measure(const Case& what,
                            const std::vector<std::unique_ptr<Contestant>>& contestants,
                            Control& control) {
  std::vector<Result> results(contestants.size());
  const auto check = [&] {
    for (std::size_t i = 0; what.check && i < contestants.size(); ++i) {
      control.barrier();
      results[i].wrong += control.sum(contestants[i]->count_wrong(what));
    }
  };
  for (const auto& contestant : contestants) contestant->prepare(what);
  check();
  std::vector<Sums> sums(contestants.size());
  for (int round = 0; round < what.rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      run_round(what, *contestants[i], control, sums[i]);
    }
  }
  check();
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    results[i].name = contestants[i]->name();
    results[i].timing = sums[i].times.finish();
    results[i].cpu_share = sums[i].wall_s > 0 ? sums[i].cpu_s / sums[i].wall_s : 0.0;
    if (control.ranks().nodes > 1) results[i].wire_bytes = sums[i].wire_bytes;
  }
  return results;
}

}  // namespace chainmail::bench
