// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/report.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/bench/exercise.h"

namespace chainmail::bench {
namespace {

double gigabytes_per_second(const Case& what, double us) {
  return us > 0 ? static_cast<double>(what.bytes) / us * 1e-3 : 0.0;
}

}  // namespace

Ratios ratios(const Timing& ours, const Timing& base) {
  Ratios result{base.median / ours.median, base.min / ours.min, 0.0};
  for (std::size_t round = 0; round < ours.rounds.size(); ++round) {
    const double ratio = base.rounds[round] / ours.rounds[round];
    result.worst_round = round == 0 ? ratio : std::min(result.worst_round, ratio);
  }
  return result;
}

std::string header_text(const Machine& machine, const Ranks& ranks, const std::string& algorithm,
                        const std::string& base) {
  std::array<char, 1024> text{};
  std::snprintf(text.data(), text.size(),
                "# chainmail-bench %s, torch %s, against %s\n"
                "# %d ranks on %d nodes; rank 0 on %s: %d cores, load %.2f, cache line round trip "
                "%.0f ns\n"
                "# algorithm %s; times are the maximum over ranks, median over rounds\n"
                "# busbw as nccl-tests define it; ratio = base / ours, (of minima), [worst round]\n"
                "#%13s %11s %12s %9s %6s %10s %10s %10s %10s %8s %8s %7s %11s  ratio\n",
                CHAINMAIL_VERSION, TORCH_VERSION, base.c_str(), ranks.size, ranks.nodes,
                machine.host.c_str(), machine.cores, machine.load, machine.cache_line_ns,
                algorithm.c_str(), "op", "size", "count", "type", "redop", "time_us", "min", "med",
                "p90", "algbw", "busbw", "#wrong", "base_us");
  return text.data();
}

std::string table_line(const Case& what, const Outcome& outcome, const Ranks& ranks) {
  const double bandwidth = gigabytes_per_second(what, outcome.ours.median);
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(),
                "%14s %11zu %12zu %9s %6s %10.2f %10.2f %10.2f %10.2f %8.2f %8.2f %7lld",
                what.op.c_str(), what.bytes, what.count(), what.dtype.c_str(), what.redop.c_str(),
                outcome.ours.median, outcome.ours.min, outcome.ours.median, outcome.ours.p90,
                bandwidth, bandwidth * bus_factor(what.op, ranks.size),
                static_cast<long long>(outcome.wrong));
  std::string line = text.data();
  if (outcome.base.rounds.empty()) return line + "\n";
  const Ratios ratio = ratios(outcome.ours, outcome.base);
  std::snprintf(text.data(), text.size(), " %11.2f  %.2f (%.2f) [%.2f]\n", outcome.base.median,
                ratio.median, ratio.min, ratio.worst_round);
  return line + text.data();
}

std::string json_line(const Case& what, const Outcome& outcome, const Ranks& ranks,
                      const Machine& machine, const std::string& algorithm,
                      const std::string& base) {
  nlohmann::ordered_json line = {{"op", what.op},
                                 {"size", what.bytes},
                                 {"count", what.count()},
                                 {"dtype", what.dtype},
                                 {"redop", what.redop},
                                 {"ranks", ranks.size},
                                 {"nodes", ranks.nodes},
                                 {"algorithm", algorithm},
                                 {"ours_us", outcome.ours.median},
                                 {"ours_min_us", outcome.ours.min},
                                 {"ours_p90_us", outcome.ours.p90},
                                 {"base", base},
                                 {"base_us", nullptr},
                                 {"ratio", nullptr},
                                 {"wrong", outcome.wrong},
                                 {"base_wrong", outcome.base_wrong},
                                 {"rounds", what.rounds},
                                 {"iterations", what.iterations},
                                 {"cache_line_ns", machine.cache_line_ns},
                                 {"load", machine.load},
                                 {"torch", TORCH_VERSION}};
  if (!outcome.base.rounds.empty()) {
    const Ratios ratio = ratios(outcome.ours, outcome.base);
    line["base_us"] = outcome.base.median;
    line["base_min_us"] = outcome.base.min;
    line["base_p90_us"] = outcome.base.p90;
    line["ratio"] = ratio.median;
    line["ratio_of_min"] = ratio.min;
    line["ratio_worst_round"] = ratio.worst_round;
  }
  return line.dump() + "\n";
}

}  // namespace chainmail::bench
