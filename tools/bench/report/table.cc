// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <array>
#include <cstdarg>
#include <cstdio>

#include "tools/bench/report/report.h"

namespace chainmail::bench {
namespace {

// snprintf into a string.
__attribute__((format(printf, 1, 2))) std::string text_of(const char* format, ...) {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

double gigabytes_per_second(double bytes, double us) { return us > 0 ? bytes / us * 1e-3 : 0.0; }

}  // namespace

std::string header_text(const RunFacts& facts) {
  const Machine& machine = facts.machine;
  std::string text = text_of("# chainmail-bench %s, commit %s, %s\n", machine.version.c_str(),
                             machine.commit.c_str(), machine.date.c_str());
  text += text_of("# %d ranks, %s; rank 0 on %s: %d cores of %s, Linux %s, load %.2f\n",
                  facts.ranks, facts.topology.c_str(), machine.host.c_str(), machine.cores,
                  machine.processor.c_str(), machine.kernel.c_str(), machine.load);
  text += text_of(
      "# cache line round trip %.0f ns; a += b on all ranks' cores %.1f GB/s, memcpy on one "
      "%.1f GB/s; %s socket %.2f GB/s\n",
      machine.cache_line_ns, machine.stream_gbs, machine.memcpy_gbs,
      facts.nodes > 1 ? "node to node" : "loopback", machine.socket_gbs);
  if (!facts.device.empty()) text += "# device: " + facts.device + "\n";
  text += text_of("# algorithm %s, wire %s; %d rounds of %d samples, contestants in turn:\n",
                  facts.algorithm.c_str(), facts.wire.c_str(), facts.rounds, facts.samples);
  for (const std::string& contestant : facts.contestants) text += "#   " + contestant + "\n";
  text +=
      "# Times are the maximum over ranks; time = med: median over rounds of each round's median.\n"
      "# After each contestant: its time, its time / ours (of minima) [worst round].\n";
  return text;
}

std::string column_text(const std::string& op, const std::vector<Result>& results) {
  std::string text = text_of("#\n# %s\n#%11s %12s %8s %6s %10s %7s %7s %6s %10s %10s %10s %7s %5s",
                             op.c_str(), "size", "count", "type", "redop", "time", "algbw", "busbw",
                             "#wrong", "min", "med", "p90", "wirebw", "cpu");
  for (std::size_t i = 1; i < results.size(); ++i) {
    text += text_of("  %10s %20s", results[i].name.c_str(), "ratio (min) [worst]");
  }
  text +=
      text_of("\n#%11s %12s %8s %6s %10s %7s %7s %6s %10s %10s %10s %7s %5s", "(B)", "(elements)",
              "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(GB/s)", "(%)");
  for (std::size_t i = 1; i < results.size(); ++i) text += text_of("  %10s %20s", "(us)", "");
  return text + "\n";
}

std::string table_line(const Measured& measured) {
  const Result& ours = measured.results.front();
  const double bandwidth =
      gigabytes_per_second(static_cast<double>(measured.bytes), ours.timing.median);
  std::string line = text_of(
      "%12zu %12zu %8s %6s %10.2f %7.2f %7.2f %6lld %10.2f %10.2f %10.2f %7.3f %5.0f",
      measured.bytes, measured.count, measured.dtype.c_str(), measured.redop.c_str(),
      ours.timing.median, bandwidth, bandwidth * measured.bus_factor,
      static_cast<long long>(ours.wrong), ours.timing.min, ours.timing.median, ours.timing.p90,
      gigabytes_per_second(ours.wire_bytes, ours.timing.median), 100 * ours.cpu_share);
  for (std::size_t i = 1; i < measured.results.size(); ++i) {
    const Result& base = measured.results[i];
    const Ratios ratio = ratios(ours.timing, base.timing);
    const std::string words =
        text_of("%.2f (%.2f) [%.2f]", ratio.median, ratio.min, ratio.worst_round);
    line += text_of("  %10.2f %20s", base.timing.median, words.c_str());
    if (base.wrong != 0) line += text_of(" %lld WRONG", static_cast<long long>(base.wrong));
  }
  return line + "\n";
}

}  // namespace chainmail::bench
