// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What rounds of samples come to. Pure functions.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace chainmail::bench {

/// Microseconds per operation, each the maximum over the ranks.
struct Timing {
  double min = 0.0;
  double median = 0.0;  ///< median over rounds of each round's median
  double p90 = 0.0;
  std::vector<double> rounds;  ///< median of each round
};

class TimingCollector {
 public:
  /// One round's samples, in any order.
  void add_round(std::vector<double> us);
  [[nodiscard]] Timing finish() const;

 private:
  std::vector<double> rounds_;
  std::vector<double> all_;
};

/// base / ours, of the medians, the minima, and the worst round.
struct Ratios {
  double median = 0.0;
  double min = 0.0;
  double worst_round = 0.0;
};

/// How one contestant did.
struct Result {
  std::string name;
  Timing timing;
  std::int64_t wrong = 0;   ///< wrong elements, over all ranks, before and after timing
  double cpu_share = 0.0;   ///< cores used per rank, the largest, while it ran
  double wire_bytes = 0.0;  ///< that one call sends from the node that sends most; 0 with one node
};

[[nodiscard]] Ratios ratios(const Timing& ours, const Timing& base);

}  // namespace chainmail::bench
