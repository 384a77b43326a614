// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the benchmark prints: a header, one line per size in nccl-tests' column order, and the same
// as one JSON object per line.

#pragma once

#include <string>

#include "tools/bench/machine.h"
#include "tools/bench/measure.h"

namespace chainmail::bench {

/// base / ours, of the medians, the minima, and the worst round.
struct Ratios {
  double median = 0.0;
  double min = 0.0;
  double worst_round = 0.0;
};
[[nodiscard]] Ratios ratios(const Timing& ours, const Timing& base);

[[nodiscard]] std::string header_text(const Machine& machine, const Ranks& ranks,
                                      const std::string& algorithm, const std::string& base);
[[nodiscard]] std::string table_line(const Case& what, const Outcome& outcome, const Ranks& ranks);
/// `base` is "none" where nothing was compared; base_us and the ratios are null then.
[[nodiscard]] std::string json_line(const Case& what, const Outcome& outcome, const Ranks& ranks,
                                    const Machine& machine, const std::string& algorithm,
                                    const std::string& base);

}  // namespace chainmail::bench
