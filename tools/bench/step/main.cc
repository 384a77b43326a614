// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-step-bench: the time of a training step, ours against others', in one alternating run.
//
//   launcher -H localhost:2 -n 2 chainmail-step-bench --against reducer-gloo,plain
//   chainmail-step-bench --nodes 2 --rate 1gbit --model paced --compute_ms 220 --against plain,wire

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
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

#include "examples/common/flags.h"
#include "tools/bench/command/nodes.h"
#include "tools/bench/measure/timing.h"
#include "tools/bench/step/models.h"
#include "tools/bench/step/trainers.h"

DEFINE_string(model, "mlp",
              "mlp (784-1024-1024-10), layers (60 small ones, 124 tensors), paced or device (25 "
              "layers of 1 MiB whose backward computes or sleeps for --compute_ms in all)");
DEFINE_double(compute_ms, 100, "of the models paced and device");
DEFINE_int64(bucket_bytes, -1, "of ours where they overlap; -1: as users get them");
DEFINE_int32(nodes, chainmail::bench::kNoNodes,
             "run over this many network namespaces of this machine, 2 or more; needs root");
DEFINE_string(rate, "", "with --nodes: of each node's link, such as 1gbit");
DEFINE_string(per_node, "1", "with --nodes: ranks on each, one number or a list");
DEFINE_string(optimizer, "adam", "adam or sgd");
DEFINE_string(communicator, "auto", "of ours");
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
using Clock = std::chrono::steady_clock;

struct Data {
  at::Tensor x, t;
};

Data make_data(int rank) {
  torch::manual_seed(static_cast<std::uint64_t>(rank) + 1);
  return {torch::rand({FLAGS_batchsize, 784}), torch::randint(10, {FLAGS_batchsize}, torch::kLong)};
}

// Microseconds of each step; the slowest rank's, since all wait for it.
std::vector<double> time_steps(Trainer& trainer, const Data& data, std::int64_t steps,
                               chainmail::Communicator& communicator) {
  const auto count = static_cast<std::size_t>(steps);
  std::vector<double> us(count);
  communicator.barrier();
  for (double& one : us) {
    const auto begin = Clock::now();
    trainer.step(data.x, data.t);
    one = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  const at::Tensor all = torch::zeros({communicator.size(), steps}, torch::kDouble);
  all[communicator.rank()].copy_(torch::tensor(us, torch::kDouble));
  communicator.allreduce(all);
  const at::Tensor slowest = std::get<0>(all.max(0));
  std::copy_n(slowest.const_data_ptr<double>(), count, us.begin());
  return us;
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

int run() {
  at::set_num_threads(FLAGS_threads);
  const auto communicator = chainmail::create_communicator(FLAGS_communicator);
  chainmail::bench::TrainerOptions options;
  options.model = FLAGS_model;
  options.optimizer = FLAGS_optimizer;
  options.pace = chainmail::bench::pace_for(FLAGS_model, FLAGS_compute_ms);
  if (FLAGS_bucket_bytes >= 0) options.bucket_bytes = FLAGS_bucket_bytes;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const std::string& name : split(FLAGS_ours + "," + FLAGS_against)) {
    trainers.push_back(chainmail::bench::make_trainer(name, options, communicator));
  }
  const Data data = make_data(communicator->rank());
  std::vector<TimingCollector> timings(trainers.size());
  for (const auto& trainer : trainers) time_steps(*trainer, data, FLAGS_warmup, *communicator);
  for (std::int64_t round = 0; round < FLAGS_rounds; ++round) {
    for (std::size_t i = 0; i < trainers.size(); ++i) {
      timings[i].add_round(time_steps(*trainers[i], data, FLAGS_steps, *communicator));
    }
  }
  std::vector<Result> results;
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    // "plain" goes apart by design, and what is meant to stay equal must have.
    if (trainers[i]->name() != "plain") {
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
    if (FLAGS_nodes != chainmail::bench::kNoNodes) {
      chainmail::bench::run_over_nodes(
          {FLAGS_nodes, FLAGS_rate, FLAGS_per_node, /*tells_rsh=*/false}, command);
    }
    return run();
  });
}
