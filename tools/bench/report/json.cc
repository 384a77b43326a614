// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <nlohmann/json.hpp>

#include "tools/bench/report/report.h"

namespace chainmail::bench {
namespace {

using Json = nlohmann::ordered_json;

Json line_of(const RunFacts& facts, const Measured& measured) {
  const Result& ours = measured.results.front();
  return {{"op", measured.op},
          {"size", measured.bytes},
          {"count", measured.count},
          {"dtype", measured.dtype},
          {"redop", measured.redop},
          {"ranks", facts.ranks},
          {"nodes", facts.nodes},
          {"ours", facts.is_engine ? "engine" : "c10d"},
          {"algorithm", facts.algorithm},
          {"wire", facts.wire},
          {"ours_us", ours.timing.median},
          {"ours_min_us", ours.timing.min},
          {"ours_p90_us", ours.timing.p90},
          {"ours_cpu_share", ours.cpu_share},
          {"ours_wire_bytes", ours.wire_bytes},
          {"base", "none"},
          {"base_us", nullptr},
          {"ratio", nullptr},
          {"wrong", ours.wrong}};
}

void add_base(Json& line, const Result& ours, const Result& base) {
  const Ratios ratio = ratios(ours.timing, base.timing);
  line["base"] = base.name;
  line["base_us"] = base.timing.median;
  line["base_min_us"] = base.timing.min;
  line["base_p90_us"] = base.timing.p90;
  line["base_cpu_share"] = base.cpu_share;
  line["base_wire_bytes"] = base.wire_bytes;
  line["base_wrong"] = base.wrong;
  line["ratio"] = ratio.median;
  line["ratio_of_min"] = ratio.min;
  line["ratio_worst_round"] = ratio.worst_round;
}

void add_machine(Json& line, const RunFacts& facts, int batch) {
  const Machine& machine = facts.machine;
  line["rounds"] = facts.rounds;
  line["samples"] = facts.samples;
  line["batch"] = batch;
  line["cache_line_ns"] = machine.cache_line_ns;
  line["stream_gbs"] = machine.stream_gbs;
  line["memcpy_gbs"] = machine.memcpy_gbs;
  line["socket_gbs"] = machine.socket_gbs;
  line["load"] = machine.load;
  if (!facts.device.empty()) line["device"] = facts.device;
  line["host"] = machine.host;
  line["processor"] = machine.processor;
  line["version"] = machine.version;
  line["commit"] = machine.commit;
  line["date"] = machine.date;
}

}  // namespace

std::string json_lines(const RunFacts& facts, const Measured& measured) {
  std::string text;
  for (std::size_t i = 0; i < measured.results.size(); ++i) {
    if (i == 0 && measured.results.size() > 1) continue;
    Json line = line_of(facts, measured);
    if (i > 0) add_base(line, measured.results.front(), measured.results[i]);
    add_machine(line, facts, measured.batch);
    text += line.dump() + "\n";
  }
  return text;
}

}  // namespace chainmail::bench
