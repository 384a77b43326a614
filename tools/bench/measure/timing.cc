// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure/timing.h"

#include <algorithm>
#include <cstddef>

namespace chainmail::bench {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

void TimingCollector::add_round(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  rounds_.push_back(quantile(us, 0.5));
  all_.insert(all_.end(), us.begin(), us.end());
}

Timing TimingCollector::finish() const {
  Timing timing;
  if (all_.empty()) return timing;
  timing.rounds = rounds_;
  std::vector<double> sorted = all_;
  std::sort(sorted.begin(), sorted.end());
  timing.min = sorted.front();
  timing.p90 = quantile(sorted, 0.9);
  sorted = rounds_;
  std::sort(sorted.begin(), sorted.end());
  timing.median = quantile(sorted, 0.5);
  return timing;
}

Ratios ratios(const Timing& ours, const Timing& base) {
  Ratios result{base.median / ours.median, base.min / ours.min, 0.0};
  for (std::size_t round = 0; round < ours.rounds.size(); ++round) {
    const double ratio = base.rounds[round] / ours.rounds[round];
    result.worst_round = round == 0 ? ratio : std::min(result.worst_round, ratio);
  }
  return result;
}

}  // namespace chainmail::bench
