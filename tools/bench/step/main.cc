// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-step-bench: the time of a training step, ours against others', in one alternating run.
//
//   launcher -H localhost:2 -n 2 chainmail-step-bench --against reducer-gloo,plain
//   chainmail-step-bench --nodes 2 --rate 1gbit --model paced --compute_ms 220 --against plain,wire

#include <gflags/gflags.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include <chainmail/communicator.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/program.h>

#include "examples/common/flags.h"
#include "tools/bench/command/nodes.h"
#include "tools/bench/measure/timing.h"
#include "tools/bench/step/models.h"
#include "tools/bench/step/step_times.h"
#include "tools/bench/step/trainers.h"
#include "tools/bench/step/usage.h"

DEFINE_string(model, "mlp",
              "mlp (784-1024-1024-10), layers (60 small ones, 124 tensors), large (25.6 M "
              "parameters in 26 layers), paced or device (25 layers of 1 MiB whose backward "
              "computes or sleeps for --compute_ms in all)");
DEFINE_string(
    measure, "step",
    "the time of a step; update: of the optimizer's own step() in it, for ours; bytes: "
    "what a node sends in a step; memory: what a node's ranks take for the first trainer");
DEFINE_double(compute_ms, 100, "of the models paced and device");
DEFINE_double(forward_ms, 0, "how long forward of the model device sleeps in all");
DEFINE_int64(bucket_bytes, -1, "of ours where they overlap; -1: as users get them");
DEFINE_int32(nodes, chainmail::bench::kNoNodes,
             "run over this many network namespaces of this machine, 2 or more; needs root");
DEFINE_string(rate, "", "with --nodes: of each node's link, such as 1gbit");
DEFINE_string(per_node, "1", "with --nodes: ranks on each, one number or a list");
DEFINE_string(optimizer, "adam", "adam or sgd");
DEFINE_string(communicator, "auto", "of ours");
DEFINE_string(allreduce_grad_dtype, "", "of gradients between nodes: float16, bfloat16, float32");
DEFINE_string(ours, "ours", "the trainer that the others are compared with");
DEFINE_string(against, "reducer-gloo,plain", "others, with commas; see --help");
DEFINE_int64(batchsize, 64, "samples per rank and step");
DEFINE_int64(steps, 30, "per round and trainer");
DEFINE_int64(warmup, 10, "steps of each trainer before the first round");
DEFINE_int64(rounds, 7, "in which the trainers take turns");
DEFINE_int32(threads, 1, "of torch, per rank");
DEFINE_string(J, "", "file for one JSON object per trainer");

namespace {

using chainmail::bench::Result;
using chainmail::bench::TimingCollector;
using chainmail::bench::Trainer;

struct Data {
  at::Tensor x, t;
};

Data make_data(int rank) {
  torch::manual_seed(static_cast<std::uint64_t>(rank) + 1);
  return {torch::rand({FLAGS_batchsize, 784}), torch::randint(10, {FLAGS_batchsize}, torch::kLong)};
}

std::vector<double> time_steps(Trainer& trainer, const Data& data, std::int64_t steps,
                               chainmail::Communicator& communicator) {
  const auto one_step = [&] {
    const double whole = chainmail::bench::microseconds_of([&] { trainer.step(data.x, data.t); });
    return FLAGS_measure == "update" ? trainer.update_time().count() : whole;
  };
  return chainmail::bench::step_times(one_step, steps, communicator);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void report(const std::vector<Result>& results, int ranks) {
  std::printf("%-14s %10s %10s %10s %8s %8s %8s\n", "trainer", "median us", "min us", "p90 us",
              "ratio", "of min", "worst");
  std::ofstream json(FLAGS_J, std::ios::app);
  for (const Result& result : results) {
    const auto ratios = chainmail::bench::ratios(results.front().timing, result.timing);
    std::printf("%-14s %10.1f %10.1f %10.1f %8.3f %8.3f %8.3f\n", result.name.c_str(),
                result.timing.median, result.timing.min, result.timing.p90, ratios.median,
                ratios.min, ratios.worst_round);
    if (!FLAGS_J.empty()) {
      json << nlohmann::json{{"op", "step"},
                             {"model", FLAGS_model},
                             {"optimizer", FLAGS_optimizer},
                             {"ranks", ranks},
                             {"batchsize", FLAGS_batchsize},
                             {"threads", FLAGS_threads},
                             {"compute_ms", FLAGS_compute_ms},
                             {"ours_us", results.front().timing.median},
                             {"base", result.name},
                             {"base_us", result.timing.median},
                             {"ratio", ratios.median},
                             {"ratio_of_min", ratios.min},
                             {"worst_round", ratios.worst_round}}
           << '\n';
    }
  }
}

// The libraries' own memory is there before, with what they take for a first step.
void measure_memory(const chainmail::bench::TrainerOptions& options, const Data& data,
                    const std::shared_ptr<chainmail::Communicator>& communicator) {
  const auto after_steps_of = [&](const std::string& name, const std::string& model) {
    chainmail::bench::TrainerOptions how = options;
    how.model = model;
    const auto trainer = chainmail::bench::make_trainer(name, how, communicator);
    for (std::int64_t i = 0; i < FLAGS_warmup; ++i) trainer->step(data.x, data.t);
    std::int64_t count = 0;
    for (const at::Tensor& parameter : trainer->parameters()) count += parameter.numel();
    const double bytes = chainmail::bench::node_memory(*communicator);
    const std::vector<std::int64_t> states = communicator->allgather_obj(trainer->state_bytes());
    if (communicator->rank() == 0 && model == FLAGS_model) {
      std::printf("parameters %" PRId64 ", largest state of a rank %" PRId64 " bytes\n", count,
                  *std::max_element(states.begin(), states.end()));
    }
    return bytes;
  };
  (void)after_steps_of("ours", "layers");
  const double before = chainmail::bench::node_memory(*communicator);
  const double after = after_steps_of(FLAGS_ours, FLAGS_model);
  if (communicator->rank() != 0) return;
  std::printf("%s, %d ranks per node: %.0f bytes per node\n", FLAGS_ours.c_str(),
              communicator->intra_size(), after - before);
}

void measure_bytes(const std::vector<std::unique_ptr<Trainer>>& trainers, const Data& data,
                   chainmail::Communicator& communicator) {
  double first = 0;
  for (const auto& trainer : trainers) {
    time_steps(*trainer, data, FLAGS_warmup, communicator);
    const double bytes =
        chainmail::bench::bytes_of_step(*trainer, data.x, data.t, FLAGS_steps, communicator);
    if (first == 0) first = bytes;
    if (communicator.rank() == 0) {
      std::printf("%-14s %12.0f bytes sent by a node in a step, %.4f of the first\n",
                  trainer->name().c_str(), bytes, bytes / first);
    }
  }
}

int run() {
  at::set_num_threads(FLAGS_threads);
  chainmail::CommunicatorOptions of_communicator;
  if (!FLAGS_allreduce_grad_dtype.empty()) {
    of_communicator.allreduce_grad_dtype = chainmail::parse_wire_dtype(FLAGS_allreduce_grad_dtype);
  }
  const auto communicator = chainmail::create_communicator(FLAGS_communicator, of_communicator);
  chainmail::bench::TrainerOptions options;
  options.model = FLAGS_model;
  options.optimizer = FLAGS_optimizer;
  options.pace = chainmail::bench::pace_for(FLAGS_model, FLAGS_compute_ms, FLAGS_forward_ms);
  if (FLAGS_bucket_bytes >= 0) options.bucket_bytes = FLAGS_bucket_bytes;
  const Data data = make_data(communicator->rank());
  if (FLAGS_measure == "memory") {
    measure_memory(options, data, communicator);
    communicator->barrier();
    return 0;
  }
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const std::string& name : split(FLAGS_ours + "," + FLAGS_against)) {
    trainers.push_back(chainmail::bench::make_trainer(name, options, communicator));
  }
  if (FLAGS_measure == "bytes") {
    measure_bytes(trainers, data, *communicator);
    trainers.clear();
    communicator->barrier();
    return 0;
  }
  std::vector<TimingCollector> timings(trainers.size());
  for (const auto& trainer : trainers) time_steps(*trainer, data, FLAGS_warmup, *communicator);
  for (std::int64_t round = 0; round < FLAGS_rounds; ++round) {
    for (std::size_t i = 0; i < trainers.size(); ++i) {
      timings[i].add_round(time_steps(*trainers[i], data, FLAGS_steps, *communicator));
    }
  }
  std::vector<Result> results;
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    trainers[i]->end();
    // Ranks by themselves go apart by design, and what is meant to stay equal must have.
    if (trainers[i]->name() != "plain" && trainers[i]->name() != "alone") {
      chainmail::verify_equal(*communicator, trainers[i]->parameters());
    }
    results.push_back({trainers[i]->name(), timings[i].finish()});
  }
  if (communicator->rank() == 0) {
    std::printf("# training step: %s, %s, %d ranks on %d nodes, batch %" PRId64
                ", %d threads, torch %s; ratio = time / ours\n",
                FLAGS_model.c_str(), FLAGS_optimizer.c_str(), communicator->size(),
                communicator->inter_size(), FLAGS_batchsize, FLAGS_threads, TORCH_VERSION);
    report(results, communicator->size());
  }
  trainers.clear();  // on all ranks before one leaves
  communicator->barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> command(argv, argv + argc);
  const flags::Program program{
      .name = "chainmail-step-bench",
      .what = "Times a training step; trainers: " + chainmail::bench::trainer_names()};
  return flags::run(program, argc, argv, [&](const auto& /*arguments*/) {
    if (FLAGS_steps < 1 || FLAGS_rounds < 1 || FLAGS_batchsize < 1 || FLAGS_threads < 1 ||
        FLAGS_warmup < 0 || FLAGS_compute_ms < 0) {
      throw flags::UsageError(
          "--steps, --rounds, --batchsize and --threads must be at least 1, --warmup and "
          "--compute_ms at least 0");
    }
    const std::vector<std::string> known{"step", "update", "bytes", "memory"};
    if (std::find(known.begin(), known.end(), FLAGS_measure) == known.end()) {
      throw flags::UsageError("--measure " + FLAGS_measure + ": use step, update, bytes or memory");
    }
    if (FLAGS_nodes != chainmail::bench::kNoNodes) {
      chainmail::bench::run_over_nodes(
          {FLAGS_nodes, FLAGS_rate, FLAGS_per_node, /*tells_rsh=*/false}, command);
    }
    return run();
  });
}
