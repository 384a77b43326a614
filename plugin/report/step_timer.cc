// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include <chainmail/report/timing.h>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

std::string TimingSummary::text() const {
  char line[160];
  std::snprintf(line, sizeof line, "step %.3g ms, %.0f %% of it waiting", step_ms,
                100 * waiting_share);
  if (slowest < 0 || ranks.size() == 1) return line;
  const RankTiming& rank = ranks[static_cast<std::size_t>(slowest)];
  std::string text = std::string(line) + "; rank " + std::to_string(slowest) + " on " + rank.host;
  std::snprintf(line, sizeof line, " is slowest: %.3g ms busy, %.2f x the median", rank.busy_ms(),
                slowdown);
  return text + line;
}

std::map<std::string, double> TimingSummary::values() const {
  return {{"timing/step_ms", step_ms},
          {"timing/waiting_share", waiting_share},
          {"timing/slowest_rank", slowest},
          {"timing/slowdown", slowdown}};
}

TimingSummary summarize(std::vector<RankTiming> ranks) {
  TimingSummary summary;
  std::vector<double> busy;
  double time = 0;
  double waiting = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].steps == 0) continue;
    const int before = summary.slowest;
    if (before < 0 || ranks[r].busy_ms() > ranks[static_cast<std::size_t>(before)].busy_ms()) {
      summary.slowest = static_cast<int>(r);
    }
    busy.push_back(ranks[r].busy_ms());
    summary.step_ms += ranks[r].step_ms;
    time += ranks[r].step_ms;
    waiting += ranks[r].waiting_ms;
  }
  if (!busy.empty()) {
    summary.step_ms /= static_cast<double>(busy.size());
    summary.waiting_share = time > 0 ? waiting / time : 0;
    std::sort(busy.begin(), busy.end());
    const double median = busy[(busy.size() - 1) / 2];
    summary.slowdown = median > 0 ? busy.back() / median : 1;
  }
  summary.ranks = std::move(ranks);
  return summary;
}

StepTimer::StepTimer(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  internal::require_communicator(communicator_, "StepTimer");
  start();
}

void StepTimer::start() {
  steps_ = 0;
  begin_ = end_ = std::chrono::steady_clock::now();
  waited_ = waited_before_ = communicator_->waited();
}

void StepTimer::step() {
  ++steps_;
  end_ = std::chrono::steady_clock::now();
  waited_ = communicator_->waited();
}

TimingSummary StepTimer::summary() {
  const auto mean_ms = [&](std::chrono::nanoseconds time) {
    return steps_ == 0 ? 0.0
                       : std::chrono::duration<double, std::milli>(time).count() /
                             static_cast<double>(steps_);
  };
  const auto all = communicator_->allgather_obj(std::tuple(communicator_->impl().world->host(),
                                                           steps_, mean_ms(end_ - begin_),
                                                           mean_ms(waited_ - waited_before_)));
  std::vector<RankTiming> ranks;
  for (const auto& [host, steps, step_ms, waiting_ms] : all) {
    ranks.push_back({host, steps, step_ms, waiting_ms});
  }
  return summarize(std::move(ranks));
}

}  // namespace chainmail
