// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-bench: how long collectives take, beside torch's Gloo and MPI in the same run. Started
// as any rank program: launcher -n 2 chainmail-bench -b 4 -e 64M -f 4 --against gloo,mpi

#include <ATen/Parallel.h>
#include <chainmail/error.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "examples/common/flags.h"
#include "ops/device_library/device_library.h"
#include "plugin/job/world.h"
#include "tools/bench/command/nodes.h"
#include "tools/bench/command/sizes.h"
#include "tools/bench/contestants/exercise.h"
#include "tools/bench/contestants/roster.h"
#include "tools/bench/device/device_time.h"
#include "tools/bench/device/kernel_contestants.h"
#include "tools/bench/machine/rates.h"
#include "tools/bench/measure/measure.h"
#include "tools/bench/report/plot.h"
#include "tools/bench/report/report.h"

// One-letter names are nccl-tests'.
DEFINE_string(b, "4", "smallest message: 4, 64K, 25M, 1G");
DEFINE_string(e, "64M", "largest message");
DEFINE_uint32(f, 4, "factor between sizes");
DEFINE_string(sizes, "", "these sizes instead, such as 4,25M");
DEFINE_int32(n, 20, "timed samples per round");
DEFINE_int32(w, 5, "warm-up samples per round");
DEFINE_int32(c, 1, "1: check the results, before and after timing; 0: do not");
DEFINE_int32(rounds, 5, "rounds; each measures ours, then the others one by one");
DEFINE_int32(batch, 0, "calls per sample; 0: 10 up to 4 KiB, else 1");
DEFINE_string(op, "all_reduce",
              "operations, such as all_reduce,broadcast; all: every one there is");
DEFINE_string(d, "float32", "element type");
DEFINE_string(o, "sum", "reduction: sum, avg, min, max");
DEFINE_bool(engine, false, "time the engine's call instead of c10d's");
DEFINE_bool(
    group_memory, false,
    "with --engine: reduce in memory that the group has allocated, see docs/cluster/bench.md");
DEFINE_string(algorithm, "auto", "auto, naive, flat, hierarchical, two_dimensional or single_node");
DEFINE_string(
    wire, "native",
    "between nodes: native, float16, bfloat16, int8 or int4; of means (-o avg) of float32");
DEFINE_string(
    against, "none",
    "what to compare with, such as gloo,mpi,mpi-inplace,mpi-sm,mpich,memory; nccl on GPUs; "
    "see docs/cluster/bench.md");
DEFINE_string(device, "cpu", "cpu or cuda: where the tensors are; GPUs of a node in turn");
DEFINE_string(kernels, "",
              "times packing, unpacking and adding in 16 bits instead, on the shapes of resnet50, "
              "bert_large, mlp or one tensor such as 256M; with commas");
DEFINE_string(mpi_rsh, "", "remote shell that starts MPI's processes on other nodes");
DEFINE_int32(nodes, chainmail::bench::kNoNodes,
             "run over this many network namespaces of this machine, 2 or more; needs root");
DEFINE_string(rate, "", "rate of the links between them, such as 1gbit; empty: not shaped");
DEFINE_string(per_node, "2", "ranks on each of them: 2, or 2,1,1 for uneven ones");
DEFINE_string(plot, "", "write a picture of time and ratio over size to this SVG file");
DEFINE_string(J, "", "append one JSON object per size and contestant to this file");

namespace chainmail::bench {
namespace {

std::vector<std::size_t> sizes_asked_for() {
  if (!FLAGS_sizes.empty()) return parse_size_list(FLAGS_sizes);
  return size_range(parse_bytes(FLAGS_b), parse_bytes(FLAGS_e), FLAGS_f);
}

Case case_asked_for() {
  if (FLAGS_n < 1 || FLAGS_w < 0 || FLAGS_rounds < 1 || FLAGS_batch < 0) {
    throw InvalidArgument("-n and --rounds must be at least 1, -w and --batch at least 0");
  }
  Case what;
  what.dtype = FLAGS_d;
  what.redop = FLAGS_o;
  what.repeats.samples = FLAGS_n;
  what.repeats.warmup = FLAGS_w;
  what.rounds = FLAGS_rounds;
  what.check = FLAGS_c != 0;
  static_cast<void>(parse_dtype(what.dtype));
  check_redop(what.redop);
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

// What a group's wire leaves as it is would be timed as if it were rounded. `way`: how it was asked
// for, "--wire int8".
void check_is_rounded(const std::string& way) {
  const std::string wire = way + " with ";
  if (FLAGS_o != "avg") {
    throw InvalidArgument(wire + "-o " + FLAGS_o +
                          ": a group's wire rounds means alone, and calls would be timed without "
                          "it; use -o avg");
  }
  if (FLAGS_d != "float32") {
    throw InvalidArgument(wire + "-d " + FLAGS_d +
                          ": a wire rounds float32 alone, and calls would be timed without it");
  }
  if (FLAGS_algorithm == "naive") {
    throw InvalidArgument(wire + "--algorithm naive, which rounds nothing; use another one");
  }
  const std::vector<std::string> operations = operations_asked_for();
  if (std::ranges::none_of(operations, is_rounded_on_wires)) {
    throw InvalidArgument(wire + "--op " + FLAGS_op +
                          ": a wire rounds reductions alone, and calls would be timed without it");
  }
}

RosterOptions roster_asked_for() {
  if (FLAGS_group_memory && !FLAGS_engine) {
    throw InvalidArgument("--group_memory needs --engine: c10d's tensors are the caller's");
  }
  if (FLAGS_wire != "native" && FLAGS_kernels.empty()) check_is_rounded("--wire " + FLAGS_wire);
  RosterOptions options;
  options.is_engine = FLAGS_engine;
  options.uses_group_memory = FLAGS_group_memory;
  options.algorithm = FLAGS_algorithm;
  options.wire = FLAGS_wire;
  options.against = parse_contestants(FLAGS_against);
  options.remote_shell = FLAGS_mpi_rsh;
  if (FLAGS_device != "cpu" && FLAGS_device != "cuda") {
    throw InvalidArgument("--device " + FLAGS_device + ": valid are cpu and cuda");
  }
  for (const std::string& name : options.against) {
    if (is_rounding_wire(name)) check_is_rounded("--against " + name);
  }
  check_contestants(options, FLAGS_device == "cuda");
  return options;
}

std::vector<std::string> kernels_asked_for() {
  const std::vector<std::string> shapes = parse_shape_names(FLAGS_kernels);
  if (shapes.empty()) return shapes;
  if (FLAGS_wire == "native") FLAGS_wire = "float16";
  const ops::WireFormat wire = ops::parse_wire_format(FLAGS_wire);
  if (wire == ops::WireFormat::kNative || ops::is_in_blocks(wire) || FLAGS_against != "none") {
    throw InvalidArgument(
        "--kernels takes --wire float16 or bfloat16, and no --against: kernels are compared with "
        "copies and with torch's ways");
  }
  return shapes;
}

int batch_for(std::size_t bytes) {
  if (FLAGS_batch > 0) return FLAGS_batch;
  return bytes <= 4096 ? 10 : 1;
}

/// Rank 0's output; the other ranks write nothing.
class Output {
 public:
  explicit Output(bool speaks) : speaks_(speaks) {
    if (!speaks_) return;
    if (!FLAGS_J.empty()) open(json_, FLAGS_J, std::ios::app);
    if (!FLAGS_plot.empty()) open(plot_, FLAGS_plot, std::ios::trunc);
  }
  void begin(RunFacts facts) {
    facts_ = std::move(facts);
    if (speaks_) std::cout << header_text(facts_) << std::flush;
  }
  void add(const Measured& measured) {
    if (!speaks_) return;
    if (all_.empty() || all_.back().op != measured.op) {
      std::cout << column_text(measured.op, measured.results);
    }
    std::cout << table_line(measured) << std::flush;
    if (json_.is_open()) json_ << json_lines(facts_, measured) << std::flush;
    all_.push_back(measured);
  }
  void end() {
    if (plot_.is_open()) plot_ << plot_svg(facts_, all_);
    if ((json_.is_open() && !json_.flush()) || (plot_.is_open() && !plot_.flush())) {
      throw system_error("writing " + FLAGS_J + " " + FLAGS_plot);
    }
  }

 private:
  static void open(std::ofstream& file, const std::string& name, std::ios::openmode mode) {
    file.open(name, mode);
    if (!file) throw InvalidArgument("cannot write " + name + "; is its folder there?");
  }

  const bool speaks_;
  std::ofstream json_;
  std::ofstream plot_;
  RunFacts facts_;
  std::vector<Measured> all_;
};

RunFacts facts_of(Control& control, const std::string& device,
                  const std::vector<std::unique_ptr<Contestant>>& contestants) {
  RunFacts facts;
  facts.device = device;
  if (control.ranks().rank == 0) facts.machine = examine_machine();
  control.barrier();
  measure_rates(control, facts.machine);
  facts.ranks = control.ranks().size;
  facts.nodes = control.ranks().nodes;
  facts.topology = control.topology().describe();
  facts.is_engine = FLAGS_engine || !FLAGS_kernels.empty();
  facts.algorithm = FLAGS_algorithm;
  facts.wire = FLAGS_wire;
  facts.rounds = FLAGS_rounds;
  facts.samples = FLAGS_n;
  for (const auto& contestant : contestants) {
    facts.contestants.push_back(contestant->name() + ": " + contestant->description());
  }
  return facts;
}

std::int64_t count_wrong(const std::vector<Result>& results) {
  std::int64_t wrong = 0;
  for (const Result& result : results) wrong += result.wrong;
  return wrong;
}

std::int64_t time_collectives(Case what, const RosterOptions& roster, World& world,
                              Control& control, Output& output) {
  const std::vector<std::size_t> sizes = sizes_asked_for();
  const bool is_on_gpu = !roster.device.is_cpu();
  const auto contestants = make_contestants(roster, world, control);
  output.begin(
      facts_of(control, is_on_gpu ? ops::open_device_library().describe() : "", contestants));
  std::int64_t wrong = 0;
  const auto time = [&](const std::string& name) {
    Measured measured{name,
                      what.bytes,
                      what.count(),
                      what.dtype,
                      what.redop,
                      what.repeats.batch,
                      bus_factor(what.op, control.ranks().size),
                      measure(what, contestants, control)};
    wrong += count_wrong(measured.results);
    output.add(measured);
  };
  for (const std::string& operation : operations_asked_for()) {
    what.op = operation;
    for (const bool is_issue : {false, true}) {
      if (is_issue && !is_on_gpu) continue;  // there calls return when all is done
      what.is_issue = is_issue;
      for (const std::size_t size : sizes) {
        what.bytes = size;
        what.repeats.batch = batch_for(size);
        time(is_issue ? operation + " issue" : operation);
      }
    }
  }
  return wrong;
}

std::int64_t time_kernels(Case what, const std::vector<std::string>& shapes, c10::Device device,
                          Control& control, Output& output) {
  const auto place = device.is_cpu()
                         ? make_host_place()
                         : make_device_place(ops::open_device_library(), device.index());
  what.repeats.batch = FLAGS_batch > 0 ? FLAGS_batch : 10;  // so that launches follow each other
  std::int64_t wrong = 0;
  bool has_begun = false;
  for (const std::string& name : shapes) {
    for (const std::string& operation : kernel_operations()) {
      const KernelCase kernel{operation, name, ops::parse_wire_format(FLAGS_wire)};
      const auto contestants = make_kernel_contestants(kernel, device, *place);
      if (!has_begun) output.begin(facts_of(control, place->describe(), contestants));
      has_begun = true;
      Measured measured{operation + " " + name,
                        size_in_bytes(kernel),
                        element_count(kernel),
                        "float32",
                        FLAGS_wire,
                        what.repeats.batch,
                        moved_per_byte(kernel),
                        measure(what, contestants, control)};
      wrong += count_wrong(measured.results);
      output.add(measured);
    }
  }
  return wrong;
}

// The number of wrong elements. With --nodes only the processes that the launcher starts return.
std::int64_t run(const std::vector<std::string>& command) {
  static_cast<void>(sizes_asked_for());
  static_cast<void>(operations_asked_for());
  const std::vector<std::string> kernels = kernels_asked_for();
  RosterOptions roster = roster_asked_for();
  const Case what = case_asked_for();
  if (FLAGS_nodes != kNoNodes) run_over_nodes({FLAGS_nodes, FLAGS_rate, FLAGS_per_node}, command);
  at::set_num_threads(1);  // a rank is a core
  const auto world = job_world();
  Control control(*world);
  roster.device =
      choose_device(FLAGS_device, control.topology().local_rank_of(control.ranks().rank));
  Output output(control.ranks().rank == 0);
  const std::int64_t wrong = kernels.empty()
                                 ? time_collectives(what, roster, *world, control, output)
                                 : time_kernels(what, kernels, roster.device, control, output);
  output.end();
  control.barrier();
  return wrong;
}

}  // namespace
}  // namespace chainmail::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const flags::Program program{
      .name = "chainmail-bench",
      .what =
          "Times collectives, as one rank of a job:\n"
          "  launcher -n 2 chainmail-bench -b 4 -e 64M -f 4 --against gloo,mpi -J times.json",
      .version = CHAINMAIL_VERSION};
  return flags::run(program, argc, argv, [&](const auto& /*arguments*/) {
    try {
      return chainmail::bench::run(words) == 0 ? 0 : 1;
    } catch (const chainmail::InvalidArgument& error) {
      std::cerr << "chainmail-bench: " << error.what() << "\n";
      return 2;
    }
  });
}
