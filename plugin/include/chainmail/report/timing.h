// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the time of a training step goes on each rank, and which rank holds up the others.
//
// One thread per rank. summary() is collective.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

namespace chainmail {

/// The mean step of one rank.
struct RankTiming {
  std::string host;        ///< its machine
  std::int64_t steps = 0;  ///< that were timed
  double step_ms = 0;      ///< all of it
  double waiting_ms = 0;   ///< of that, until the gradients of all ranks were there: the exchange,
                           ///< as far as backward did not hide it, and slower ranks
  /// What is not waiting.
  double busy_ms() const noexcept { return step_ms - waiting_ms; }
};

/// The same on every rank.
struct CHAINMAIL_API TimingSummary {
  std::vector<RankTiming> ranks;  ///< in rank order
  double step_ms = 0;             ///< mean over the ranks
  double waiting_share = 0;       ///< of all steps' time
  int slowest = -1;               ///< the rank that is busy longest; the others wait for it
  double slowdown = 1;            ///< its busy time over the median of all ranks

  /// Whether the slowest rank is worth a look: half as slow again as the median.
  bool has_straggler() const noexcept { return slowdown >= 1.5; }
  /// "step 12.3 ms, 18 % of it waiting; rank 3 on node1 is slowest: 11.9 ms busy, 1.6 x the median"
  [[nodiscard]] std::string text() const;
  /// For a ReportEntry: timing/step_ms, timing/waiting_share, timing/slowest_rank,
  /// timing/slowdown.
  [[nodiscard]] std::map<std::string, double> values() const;
};

/// The summary of timings in rank order. Local.
[[nodiscard]] CHAINMAIL_API TimingSummary summarize(std::vector<RankTiming> ranks);

/// Times steps: start(), then step() after each, until summary(). What is between summary() and
/// start(), such as evaluation, does not count.
class CHAINMAIL_API StepTimer {
 public:
  /// Keeps the communicator. Local.
  explicit StepTimer(std::shared_ptr<Communicator> communicator);
  /// Starts the first step. Local.
  void start();
  /// Ends a step and starts the next. Local.
  void step();
  /// Sums up the steps since start(). Collective.
  [[nodiscard]] TimingSummary summary();

 private:
  std::shared_ptr<Communicator> communicator_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point end_;
  std::chrono::nanoseconds waited_before_{0};
  std::chrono::nanoseconds waited_{0};
  std::int64_t steps_ = 0;
};

}  // namespace chainmail
