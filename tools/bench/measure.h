// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Times an operation on two groups in turn and checks its results.
//
// Collective: all ranks run the same cases. Times of an operation are the maximum over the ranks,
// since the slowest one holds up a training step.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/groups.h"

namespace chainmail::bench {

struct Case {
  std::string op = "all_reduce";  ///< one of exercise_names()
  std::size_t bytes = 4;
  std::string dtype = "float32";
  std::string redop = "sum";  ///< sum, avg, min or max
  int iterations = 20;
  int warmup = 5;
  int rounds = 5;
  bool check = true;

  std::size_t count() const;  ///< elements, at least one
};

/// Microseconds per operation.
struct Timing {
  double min = 0.0;
  double median = 0.0;  ///< median over rounds of each round's median
  double p90 = 0.0;
  std::vector<double> rounds;  ///< median of each round
};

struct Outcome {
  Timing ours;
  Timing base;             ///< empty without a base
  std::int64_t wrong = 0;  ///< wrong elements of ours, over all ranks, before and after timing
  std::int64_t base_wrong = 0;
};

/// Throws InvalidArgument for an unknown dtype.
[[nodiscard]] at::ScalarType parse_dtype(const std::string& name);

/// Round by round ours, base, ours, base; `base` may be null.
[[nodiscard]] Outcome measure(const Case& what, const Candidate& ours, const Candidate* base,
                              const Ranks& ranks);

}  // namespace chainmail::bench
