// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-bench: how long collectives take, beside torch's Gloo group in the same run. Started as
// any rank program: launcher -n 2 chainmail-bench -b 4 -e 64M -f 4 --against gloo

#include <chainmail/backend.h>
#include <chainmail/communicator.h>
#include <gflags/gflags.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "tools/bench/exercise.h"
#include "tools/bench/report.h"
#include "tools/bench/sizes.h"

// One-letter names are nccl-tests'.
DEFINE_string(b, "4", "smallest message: 4, 64K, 25M, 1G");
DEFINE_string(e, "64M", "largest message");
DEFINE_uint32(f, 4, "factor between sizes");
DEFINE_string(sizes, "", "these sizes instead, such as 4,25M");
DEFINE_int32(n, 20, "timed operations per round");
DEFINE_int32(w, 5, "warm-up operations per round");
DEFINE_int32(c, 1, "1: check the results, before and after timing; 0: do not");
DEFINE_int32(rounds, 5, "rounds; each measures ours, then the base");
DEFINE_string(op, "all_reduce",
              "operations, such as all_reduce,broadcast; all: every one there is");
DEFINE_string(d, "float32", "element type");
DEFINE_string(o, "sum", "reduction: sum, avg, min, max");
DEFINE_string(algorithm, "auto", "auto, naive, flat, hierarchical, two_dimensional or single_node");
DEFINE_string(wire, "native", "between nodes: native, float16 or bfloat16");
DEFINE_string(against, "none", "what to compare with: none or gloo");
DEFINE_string(J, "", "append one JSON object per size to this file");

namespace chainmail::bench {
namespace {

std::vector<std::size_t> sizes_asked_for() {
  if (!FLAGS_sizes.empty()) return parse_size_list(FLAGS_sizes);
  return size_range(parse_bytes(FLAGS_b), parse_bytes(FLAGS_e), FLAGS_f);
}

Case case_asked_for() {
  if (FLAGS_n < 1 || FLAGS_w < 0 || FLAGS_rounds < 1) {
    throw InvalidArgument("-n and --rounds must be at least 1, -w at least 0");
  }
  if (FLAGS_against != "none" && FLAGS_against != "gloo") {
    throw InvalidArgument("cannot compare with \"" + FLAGS_against + "\"; valid are: none, gloo");
  }
  Case what;
  what.dtype = FLAGS_d;
  what.redop = FLAGS_o;
  what.iterations = FLAGS_n;
  what.warmup = FLAGS_w;
  what.rounds = FLAGS_rounds;
  what.check = FLAGS_c != 0;
  static_cast<void>(parse_dtype(what.dtype));
  return what;
}

std::vector<std::string> operations_asked_for() {
  if (FLAGS_op == "all") return exercise_names();
  std::vector<std::string> names;
  std::istringstream list(FLAGS_op);
  for (std::string name; std::getline(list, name, ',');) {
    static_cast<void>(bus_factor(name, 1));  // throws for an unknown one
    names.push_back(name);
  }
  return names;
}

// The number of wrong elements.
std::int64_t run() {
  const std::vector<std::size_t> sizes = sizes_asked_for();
  const std::vector<std::string> operations = operations_asked_for();
  Case what = case_asked_for();
  const auto communicator = create_communicator("flat");
  const Ranks ranks{communicator->rank(), communicator->size(), communicator->inter_size()};
  const auto store = make_job_store();
  const Candidate ours = make_ours(store, ranks, FLAGS_algorithm, FLAGS_wire);
  std::optional<Candidate> base;
  if (FLAGS_against == "gloo") base = make_gloo(store, ranks);

  const bool speaks = ranks.rank == 0;
  const Machine machine = speaks ? examine_machine() : Machine{};
  communicator->barrier();
  std::ofstream json;
  if (speaks && !FLAGS_J.empty()) {
    json.open(FLAGS_J, std::ios::app);
    if (!json) throw InvalidArgument("cannot write " + FLAGS_J + "; is its folder there?");
  }
  if (speaks) std::cout << header_text(machine, ranks, FLAGS_algorithm, FLAGS_against);

  std::int64_t wrong = 0;
  for (const std::string& operation : operations) {
    for (const std::size_t size : sizes) {
      what.op = operation;
      what.bytes = size;
      const Outcome outcome = measure(what, ours, base ? &*base : nullptr, ranks);
      wrong += outcome.wrong + outcome.base_wrong;
      if (!speaks) continue;
      std::cout << table_line(what, outcome, ranks) << std::flush;
      if (json.is_open()) {
        json << json_line(what, outcome, ranks, machine, FLAGS_algorithm, FLAGS_against)
             << std::flush;
      }
    }
  }
  communicator->barrier();
  return wrong;
}

}  // namespace
}  // namespace chainmail::bench

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "times collectives, as one rank of a job.\n"
      "  launcher -n 2 chainmail-bench -b 4 -e 64M -f 4 --against gloo -J times.json");
  gflags::SetVersionString(CHAINMAIL_VERSION);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (argc > 1) {
      throw chainmail::InvalidArgument(std::string("what is \"") + argv[1] +
                                       "\"? See chainmail-bench --help");
    }
    return chainmail::bench::run() == 0 ? 0 : 1;
  } catch (const chainmail::InvalidArgument& error) {
    std::cerr << "chainmail-bench: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "chainmail-bench: " << error.what() << "\n";
    return 1;
  }
}
