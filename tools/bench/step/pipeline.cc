// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-pipeline-bench: a step of a Pipeline beside what each of its stages computes in it, in
// one alternating run. Of M + P - 1 turns P - 1 are idle, so nothing takes less than that share
// more.
//
//   launcher -H localhost:2 -n 2 chainmail-pipeline-bench
//
// Exit code: 0; 1 when the step takes longer than --at_most; 2 for a bad command line.

#include <gflags/gflags.h>

#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <chainmail/communicator.h>
#include <chainmail/nn/parallel/pipeline.h>

#include "examples/common/flags.h"
#include "tools/bench/measure/timing.h"
#include "tools/bench/step/step_times.h"

DEFINE_int32(microbatches, 8, "pieces of a batch");
DEFINE_int64(samples, 64, "in each of them");
DEFINE_int64(units, 512, "of each layer; samples * units * 4 bytes go from stage to stage");
DEFINE_int64(layers, 6, "of each stage, linear ones with ReLU");
DEFINE_string(communicator, "auto", "of ours");
DEFINE_int64(steps, 10, "per round and contestant");
DEFINE_int64(warmup, 5, "steps of each before the first round");
DEFINE_int64(rounds, 7, "in which they take turns");
DEFINE_int32(threads, 1, "of torch, per rank");
DEFINE_double(at_most, 0,
              "fail when a step takes more than this many times what its turns would; 0: never");

namespace {

using chainmail::bench::TimingCollector;

torch::nn::Sequential make_stage() {
  torch::manual_seed(1);
  torch::nn::Sequential stage;
  for (std::int64_t layer = 0; layer < FLAGS_layers; ++layer) {
    stage->push_back(torch::nn::Linear(FLAGS_units, FLAGS_units));
    stage->push_back(torch::nn::ReLU());
  }
  return stage;
}

torch::Tensor error_of(const torch::Tensor& y, const torch::Tensor& t) {
  return (y - t).pow(2).mean();
}

// A stage's own part of a step: forward and backward of every piece, and nothing to wait for.
class Stage {
 public:
  Stage(const torch::Tensor& batch, bool needs_input_gradient, bool is_last) : is_last_(is_last) {
    for (const torch::Tensor& piece : batch.tensor_split(FLAGS_microbatches)) {
      pieces_.push_back(piece.clone().requires_grad_(needs_input_gradient));
    }
  }

  void step() {
    for (torch::Tensor& piece : pieces_) {
      const torch::Tensor y = stage_->forward(piece);
      if (is_last_) {
        error_of(y, piece.detach()).backward();
      } else {
        y.backward(piece.detach());  // as large as what the next stage sends back
      }
      piece.mutable_grad().reset();
    }
  }

 private:
  torch::nn::Sequential stage_ = make_stage();
  std::vector<torch::Tensor> pieces_;
  bool is_last_;
};

void report(const std::vector<chainmail::bench::Result>& results, int ranks, double turns) {
  std::printf("# %d stages of %" PRId64 " layers of %" PRId64 " units, %d microbatches of %" PRId64
              " samples, %d threads, torch %s; ratio = time / stage\n",
              ranks, FLAGS_layers, FLAGS_units, FLAGS_microbatches, FLAGS_samples, FLAGS_threads,
              TORCH_VERSION);
  std::printf("%-10s %10s %10s %10s %8s %8s %9s\n", "what", "median us", "min us", "p90 us",
              "ratio", "of min", "of turns");
  for (const auto& result : results) {
    const auto ratios = chainmail::bench::ratios(results.front().timing, result.timing);
    std::printf("%-10s %10.1f %10.1f %10.1f %8.3f %8.3f %9.3f\n", result.name.c_str(),
                result.timing.median, result.timing.min, result.timing.p90, ratios.median,
                ratios.min, ratios.median / turns);
  }
}

int run() {
  at::set_num_threads(FLAGS_threads);
  const auto communicator = chainmail::create_communicator(FLAGS_communicator);
  const int ranks = communicator->size();
  const bool is_last = communicator->rank() == ranks - 1;
  torch::manual_seed(2);
  const torch::Tensor batch = torch::rand({FLAGS_samples * FLAGS_microbatches, FLAGS_units});
  Stage stage(batch, communicator->rank() > 0, is_last);
  chainmail::Pipeline pipeline(make_stage(), communicator, {.microbatches = FLAGS_microbatches});

  const std::vector<std::pair<std::string, std::function<void()>>> contestants{
      {"stage", [&] { stage.step(); }},
      {"pipeline", [&] { (void)pipeline.step(batch, batch, error_of); }}};
  std::vector<TimingCollector> timings(contestants.size());
  const auto time = [&](std::size_t i, std::int64_t steps) {
    const auto one_step = [&] { return chainmail::bench::microseconds_of(contestants[i].second); };
    return chainmail::bench::step_times(one_step, steps, *communicator);
  };
  for (std::size_t i = 0; i < contestants.size(); ++i) time(i, FLAGS_warmup);
  for (std::int64_t round = 0; round < FLAGS_rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) timings[i].add_round(time(i, FLAGS_steps));
  }
  std::vector<chainmail::bench::Result> results;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    results.push_back({contestants[i].first, timings[i].finish()});
  }
  const double turns = static_cast<double>(FLAGS_microbatches + ranks - 1) / FLAGS_microbatches;
  if (communicator->rank() == 0) report(results, ranks, turns);
  communicator->barrier();
  const double share = results[1].timing.median / results[0].timing.median / turns;
  return FLAGS_at_most > 0 && share > FLAGS_at_most ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "chainmail-pipeline-bench",
      .what = "Times a step of a Pipeline, a stage per rank, beside what each stage computes."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (FLAGS_microbatches < 1 || FLAGS_samples < 1 || FLAGS_units < 1 || FLAGS_layers < 1 ||
        FLAGS_steps < 1 || FLAGS_rounds < 1 || FLAGS_threads < 1 || FLAGS_warmup < 0) {
      throw flags::UsageError("all numbers must be at least 1, --warmup at least 0");
    }
    flags::check_at_least(0, "at_most", FLAGS_at_most);
    return run();
  });
}
