// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// ChainerMN's MNIST examples: a multi-layer perceptron trained by any number of ranks, which may be
// ended in any way and goes on from its last checkpoint, on as many ranks as there are then.
//
// Exit code: 0; 1 when training fails; 2 for a command line that cannot be carried out.

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include "../common/job.h"
#include "../common/mlp.h"
#include "in_shards.h"

DEFINE_string(communicator, "hierarchical",
              "naive, flat, hierarchical, two_dimensional, single_node or auto; on GPUs also "
              "pure_nccl and non_cuda_aware; torch's own to compare with: gloo, on GPUs nccl");
DEFINE_string(allreduce_grad_dtype, "", "of gradients between nodes: float16, bfloat16, float32");
DEFINE_string(wire, "",
              "the same, or also int8 and int4, which keep what they round away for the next step: "
              "native, float16, bfloat16, int8, int4, auto");
DEFINE_string(cross, "tcp", "what joins the nodes: tcp, or mpi (under mpiexec)");
DEFINE_bool(double_buffering, false, "exchange gradients while the next step computes");
DEFINE_string(shard, "none",
              "node: the ranks of a node share the optimizer's state and work; all: all ranks do");
DEFINE_int64(local_steps, 0,
             "steps that each node makes by itself from one exchange of what it has changed to the "
             "next; 0: gradients of every step are averaged over all ranks");
DEFINE_int64(batchsize, 100, "samples per rank and step");
DEFINE_uint32(
    shards, 0,
    "parts of each step, of batchsize samples each, whose result has the same bits on any "
    "number of ranks; 0: what the launcher says, or a part per rank whose sums are not");
DEFINE_int64(epoch, 20, "times through the training data");
DEFINE_int64(unit, 1000, "units of each hidden layer");
DEFINE_string(device, "cpu", "cpu, or cuda: the ranks of a node take its GPUs in turn");
DEFINE_string(autocast, "", "bfloat16: layers compute in it; parameters and sums stay float32");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for log and checkpoints");
DEFINE_bool(plot, false, "draw OUT/loss.svg and OUT/accuracy.svg");
DEFINE_string(tensorboard, "", "folder for TensorBoard's event files; one folder per run");
DEFINE_bool(timing, false, "say after each epoch how long steps take and which rank is slowest");
DEFINE_string(resume, "", "go on from the checkpoints in this folder, such as OUT/snapshot");
DEFINE_string(run_id, "", "keep checkpoints in OUT/RUN_ID and go on from the newest one there");
DEFINE_int64(interval, 0, "iterations from one checkpoint to the next; 0: one after each epoch");
DEFINE_uint64(seed, 0, "of the initial weights and of the order of samples");
DEFINE_bool(verify, false, "end with a digest of the parameters; fail when ranks differ");

namespace {

namespace fs = std::filesystem;

chainmail::Sharding sharding() {
  if (FLAGS_shard == "node") return chainmail::Sharding::kNode;
  return FLAGS_shard == "all" ? chainmail::Sharding::kAll : chainmail::Sharding::kNone;
}

// A quarter of the parameters at a time where that can be, each with half the time until the next.
std::optional<chainmail::LocalSteps> local_steps() {
  if (FLAGS_local_steps == 0) return std::nullopt;
  chainmail::LocalSteps local{.steps = FLAGS_local_steps};
  local.fragments = local.steps % 4 == 0 ? 4 : 1;
  local.delay = local.steps / local.fragments / 2;
  return local;
}

void check_flags() {
  const std::set<std::string> wires{"", "native", "float16", "bfloat16", "int8", "int4", "auto"};
  std::string problem;
  if (FLAGS_double_buffering && FLAGS_communicator == "naive") {
    problem = "--double_buffering: communicator 'naive' exchanges gradients one by one and cannot";
  } else if (FLAGS_dataset != "mnist" && FLAGS_dataset != "fashion_mnist") {
    problem = "--dataset " + FLAGS_dataset + ": use mnist or fashion_mnist";
  } else if (FLAGS_shard != "none" && FLAGS_shard != "node" && FLAGS_shard != "all") {
    problem = "--shard " + FLAGS_shard + ": use none, node or all";
  } else if (!wires.contains(FLAGS_wire)) {
    problem = "--wire " + FLAGS_wire + ": use native, float16, bfloat16, int8, int4 or auto";
  } else if (FLAGS_local_steps < 0) {
    problem = "--local_steps " + std::to_string(FLAGS_local_steps) + ": must be at least 0";
  } else if (FLAGS_local_steps > 0 && (FLAGS_double_buffering || FLAGS_shard != "none" ||
                                       FLAGS_device != "cpu" || FLAGS_communicator == "gloo")) {
    problem =
        "--local_steps goes with --device cpu, without --double_buffering and --shard, and "
        "not with --communicator gloo";
  } else if (FLAGS_batchsize < 1 || FLAGS_epoch < 0 || FLAGS_unit < 1 || FLAGS_interval < 0) {
    problem = "--batchsize and --unit must be at least 1, --epoch and --interval at least 0";
  } else if (!FLAGS_autocast.empty() && FLAGS_autocast != "bfloat16") {
    problem = "--autocast " + FLAGS_autocast + ": use bfloat16, or nothing for float32";
  } else if (FLAGS_run_id == "." || FLAGS_run_id == ".." ||
             FLAGS_run_id.find('/') != std::string::npos) {
    problem = "--run_id " + FLAGS_run_id + ": must be a name for a folder in --out";
  } else if (!FLAGS_run_id.empty() && !FLAGS_resume.empty()) {
    problem = "--run_id goes on from OUT/NAME by itself, so leave --resume out";
  }
  if (!problem.empty()) throw flags::UsageError(problem);
  flags::check_given("out", FLAGS_out);
}

// Loss and accuracy over this rank's samples so far.
struct Sums {
  chainmail::Metrics metrics(const std::string& prefix) const {
    chainmail::Metrics metrics;
    const auto count = static_cast<double>(std::max<std::int64_t>(samples, 1));
    metrics.add(prefix + "main/loss", loss / count, samples);
    metrics.add(prefix + "main/accuracy", static_cast<double>(hits) / count, samples);
    return metrics;
  }
  double loss = 0;
  std::int64_t hits = 0, samples = 0;
};

class Training {
 public:
  explicit Training(std::shared_ptr<chainmail::Communicator> comm)
      : comm_(std::move(comm)),
        device_(choose_device(FLAGS_device, *comm_)),
        current_device_(device_),
        place_(chainmail::on_all_ranks(
            *comm_, [] { return chainmail::find_dataset(FLAGS_dataset, FLAGS_data); })),
        train_batches_(batches("train", {.seed = FLAGS_seed})),
        test_batches_(batches("t10k", {.shuffle = false, .force_equal_length = false})),
        reports_(*comm_),
        timer_(comm_) {
    print_banner(*comm_, {"Num unit: " + std::to_string(FLAGS_unit),
                          "Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                          "Num epoch: " + std::to_string(FLAGS_epoch),
                          "Dataset: " + FLAGS_dataset + " in " + place_.directory + " (" +
                              place_.origin + ")"});
    torch::manual_seed(FLAGS_seed);
    model_ = make_mlp(pixels_, FLAGS_unit, kClasses);
    model_->to(device_);
    optimizer_ = chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::Adam>(model_->parameters(), 1e-3), comm_,
        {.model = &model_,
         .double_buffering = FLAGS_double_buffering,
         .shard = sharding(),
         .wire = FLAGS_wire.empty() ? std::nullopt : std::optional(FLAGS_wire),
         .local_steps = local_steps()});
    resume();
  }

  void run() {
    add_reports(reports_, *comm_, FLAGS_out,
                {"epoch", "main/loss", "validation/main/loss", "main/accuracy",
                 "validation/main/accuracy", "elapsed_time"},
                epoch_, FLAGS_plot, FLAGS_tensorboard);
    auto evaluator = chainmail::create_multi_node_evaluator([this] { return evaluate(); }, comm_);
    started_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(elapsed_time_));
    while (epoch_ < FLAGS_epoch) {
      timer_.start();
      // A checkpoint of an epoch's last iteration has the iterator in the next epoch already.
      while (const auto batch =
                 train_batches_.state().epoch == epoch_ ? train_batches_.next() : std::nullopt) {
        optimizer_->zero_grad();
        const torch::Tensor loss = forward(*batch, FLAGS_autocast == "bfloat16", sums_);
        loss.backward();
        const chainmail::StepResult step = optimizer_->step();
        timer_.step();
        ++iteration_;
        if (step.wire_error > 0) {
          wire_values_ = {{"main/wire_error", step.wire_error},
                          {"main/wire_bytes", static_cast<double>(step.wire_bytes)}};
        }
        reports_.progress({iteration_, train_batches_.batches_per_epoch(), FLAGS_epoch});
        if (FLAGS_interval > 0 && iteration_ % FLAGS_interval == 0) save();
      }
      optimizer_->flush();  // evaluation sees every gradient
      train_batches_.load_state({train_batches_.state().seed, ++epoch_, 0});
      chainmail::ReportEntry entry{epoch_, iteration_, 0.0, evaluator.evaluate()};
      entry.values.merge(chainmail::aggregate_metrics(sums_.metrics(""), *comm_).means());
      sums_ = {};
      entry.values.insert(wire_values_.begin(), wire_values_.end());
      if (FLAGS_timing) {
        const chainmail::TimingSummary timing = timer_.summary();
        entry.values.merge(timing.values());
        if (comm_->rank() == 0) {
          std::cerr << "epoch " + std::to_string(epoch_) + ": " + timing.text() + "\n";
        }
      }
      entry.elapsed_time = update_time();
      chainmail::on_all_ranks(*comm_, [&] { reports_.report(entry); });
      if (FLAGS_interval == 0) save();
    }
    reports_.finish();
    if (checkpoints_) checkpoints_->wait();
    if (FLAGS_verify) print_digest(*comm_, model_->parameters());
    comm_->finalize();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kClasses = 10;

  // Flat images, 0 to 1, and labels, on the device.
  chainmail::TensorIterator batches(const std::string& part,
                                    const chainmail::SamplerOptions& order) {
    const auto set = chainmail::on_all_ranks(
        *comm_, [&] { return chainmail::read_image_set(place_.directory, part, kClasses); });
    const auto samples = static_cast<std::size_t>(set.images.size(0));
    pixels_ = set.images[0].numel();
    return {{set.images.flatten(1).to(device_), set.labels.to(device_)},
            chainmail::create_multi_node_sampler(samples, comm_, order),
            {.batch_size = FLAGS_batchsize, .scale = 1.0 / 255.0}};
  }

  torch::Tensor forward(const chainmail::TensorList& batch, bool is_autocast, Sums& sums) {
    at::autocast::set_autocast_dtype(device_.type(), torch::kBFloat16);
    at::autocast::set_autocast_enabled(device_.type(), is_autocast);
    const torch::Tensor& t = batch[1];
    const torch::Tensor y = model_->forward(batch[0]);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(y, t);
    at::autocast::set_autocast_enabled(device_.type(), false);
    at::autocast::clear_cache();  // of the parameters, which the step changes
    sums.loss += loss.item<double>() * static_cast<double>(t.size(0));
    sums.hits += y.argmax(1).eq(t).sum().item<std::int64_t>();
    sums.samples += t.size(0);
    return loss;
  }

  chainmail::Metrics evaluate() {
    const torch::NoGradGuard no_grad;
    Sums sums;
    while (const auto batch = test_batches_.next()) forward(*batch, false, sums);
    return sums.metrics("validation/");
  }

  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpoints_in(const fs::path& folder) {
    auto all = open_checkpoints(comm_, folder);
    all->add("model", &model_);
    all->add("optimizer", *optimizer_);
    all->add("batches", train_batches_);
    all->add("rng", at::detail::getDefaultCPUGenerator());
    all->add("epoch", &epoch_);
    all->add("iteration", &iteration_);
    all->add("elapsed time", &elapsed_time_);
    all->add("loss", &sums_.loss);
    all->add("hits", &sums_.hits);
    all->add("samples", &sums_.samples);
    return all;
  }

  void resume() {
    const fs::path source = FLAGS_run_id.empty() ? fs::path(FLAGS_resume) : folder();
    if (source.empty()) return;
    chainmail::on_all_ranks(*comm_, [&] {
      if (FLAGS_run_id.empty() && comm_->rank() == 0 &&
          (!fs::is_directory(source) || fs::is_empty(source))) {
        throw chainmail::InvalidArgument("cannot resume from " + source.string() +
                                         ": there is no such folder with checkpoints");
      }
    });
    checkpoints_ = checkpoints_in(source);
    checkpoints_->maybe_load();
    std::error_code ignored;
    if (!fs::equivalent(source, folder(), ignored)) checkpoints_.reset();
    if (FLAGS_run_id.empty()) return;
    std::printf("Rank %d: (Re)Starting from (epoch, iter) = (%" PRId64 ", %" PRId64 ")\n",
                comm_->rank(), epoch_, iteration_);
    std::fflush(stdout);
  }

  void save() {
    if (!checkpoints_) {
      drop_checkpoints(*comm_, folder());
      checkpoints_ = checkpoints_in(folder());
    }
    update_time();
    checkpoints_->save(iteration_);
  }

  static fs::path folder() {
    return fs::path(FLAGS_out) / (FLAGS_run_id.empty() ? "snapshot" : FLAGS_run_id);
  }

  double update_time() {
    return elapsed_time_ = std::chrono::duration<double>(Clock::now() - started_).count();
  }

  std::shared_ptr<chainmail::Communicator> comm_;
  torch::Device device_;
  c10::DeviceGuard current_device_;
  chainmail::DatasetLocation place_;
  std::int64_t pixels_ = 0;
  chainmail::TensorIterator train_batches_, test_batches_;
  torch::nn::Sequential model_{nullptr};
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  chainmail::ReportList reports_;
  std::map<std::string, double> wire_values_;  ///< of the integer wires, once known
  chainmail::StepTimer timer_;
  Sums sums_;  // of this epoch
  std::int64_t epoch_ = 0, iteration_ = 0;
  double elapsed_time_ = 0;
  Clock::time_point started_;
  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpoints_;  // last: it refers to the rest
};

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "train_mnist",
      .what = "Trains a multi-layer perceptron on MNIST with all ranks of the job.",
      .short_names = {
          {'b', "batchsize"}, {'e', "epoch"}, {'u', "unit"}, {'o', "out"}, {'r', "resume"}}};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    check_flags();
    if (FLAGS_shards > 0 || std::getenv("CHAINMAIL_SHARDS") != nullptr) {
      train_in_shards();
      return 0;
    }
    Training(join(FLAGS_communicator, FLAGS_device, FLAGS_allreduce_grad_dtype, FLAGS_cross)).run();
    return 0;
  });
}
