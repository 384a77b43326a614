// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "in_shards.h"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../common/flags.h"
#include "../common/job.h"
#include "../common/mlp.h"
#include "../common/shards.h"

DECLARE_string(communicator);
DECLARE_string(allreduce_grad_dtype);
DECLARE_string(cross);
DECLARE_bool(double_buffering);
DECLARE_string(shard);
DECLARE_int64(local_steps);
DECLARE_int64(batchsize);
DECLARE_uint32(shards);
DECLARE_string(wire);
DECLARE_int64(epoch);
DECLARE_int64(unit);
DECLARE_string(device);
DECLARE_string(autocast);
DECLARE_string(dataset);
DECLARE_string(data);
DECLARE_string(out);
DECLARE_bool(plot);
DECLARE_string(tensorboard);
DECLARE_string(resume);
DECLARE_string(run_id);
DECLARE_int64(interval);
DECLARE_uint64(seed);
DECLARE_bool(verify);

namespace {

namespace fs = std::filesystem;

std::unique_ptr<chainmail::ElasticJob> join_job() {
  if (FLAGS_device != "cpu") throw flags::UsageError("--shards goes with --device cpu");
  if (FLAGS_double_buffering) throw flags::UsageError("--shards goes without --double_buffering");
  if (FLAGS_shard != "none") throw flags::UsageError("--shards goes without --shard");
  if (!FLAGS_wire.empty()) {
    throw flags::UsageError("--shards goes with --allreduce_grad_dtype, not with --wire");
  }
  if (FLAGS_local_steps != 0) throw flags::UsageError("--shards goes without --local_steps");
  if (!FLAGS_autocast.empty()) throw flags::UsageError("--shards goes without --autocast");
  if (!FLAGS_resume.empty()) throw flags::UsageError("--shards goes on by --run_id, not --resume");
  chainmail::ElasticJobOptions options;
  options.shards = FLAGS_shards;
  options.seed = FLAGS_seed;
  options.communicator = FLAGS_communicator;
  options.communicator_options.cross = FLAGS_cross;
  return join_in_shards(options, FLAGS_allreduce_grad_dtype);
}

class ShardedTraining {
 public:
  ShardedTraining()
      : job_(join_job()),
        comm_(job_->communicator()),
        place_(chainmail::on_all_ranks(
            *comm_, [] { return chainmail::find_dataset(FLAGS_dataset, FLAGS_data); })),
        train_(read("train")),
        test_(read("t10k")),
        samples_(static_cast<std::size_t>(train_.labels.size(0)),
                 {.batch = FLAGS_batchsize * job_->shards(), .seed = FLAGS_seed}) {
    torch::manual_seed(FLAGS_seed);
    model_ = make_mlp(train_.images[0].numel(), FLAGS_unit, kClasses);
    optimizer_ = chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::Adam>(model_->parameters(), 1e-3), comm_,
        {.model = &model_});
    job_->add("model", &model_);
    job_->add("optimizer", *optimizer_);
    job_->add("samples", samples_);
    const auto steps_per_epoch = static_cast<std::int64_t>(samples_.steps_per_epoch());
    if (!FLAGS_run_id.empty()) {
      job_->checkpoint(FLAGS_run_id, {.path = FLAGS_out},
                       FLAGS_interval > 0 ? FLAGS_interval : steps_per_epoch);
    }
    job_->on_world([this](const chainmail::Membership& world) {
      if (FLAGS_run_id.empty()) make_checkpoints();
      begin_reports(world.generation == 1);
    });
  }

  void run() {
    job_->run([this](chainmail::Step& step) { return train(step); });
    if (reports_) reports_->finish();
    if (checkpoints_) checkpoints_->wait();
    if (FLAGS_verify) print_digest(*comm_, model_->parameters());
    comm_->finalize();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kClasses = 10;

  // Of a run that none goes on from.
  void make_checkpoints() {
    checkpoints_ = open_checkpoints(comm_, fs::path(FLAGS_out) / "snapshot");
    checkpoints_->add("model", &model_);
    checkpoints_->add("optimizer", *optimizer_);
    checkpoints_->add("samples", samples_);
    checkpoints_->add("job", *job_);
  }

  // Who is rank 0 may change.
  void begin_reports(bool is_first) {
    if (is_first) print_banner();
    reports_.emplace(*comm_);
    add_reports(*reports_, *comm_, FLAGS_out,
                {"epoch", "main/loss", "validation/main/loss", "main/accuracy",
                 "validation/main/accuracy", "elapsed_time"},
                samples_.state().epoch, FLAGS_plot, FLAGS_tensorboard);
  }

  void print_banner() {
    ::print_banner(*comm_, {"Num unit: " + std::to_string(FLAGS_unit),
                            "Num Minibatch-size: " + std::to_string(FLAGS_batchsize) +
                                " in each of " + std::to_string(job_->shards()) + " shards",
                            "Num epoch: " + std::to_string(FLAGS_epoch),
                            "Dataset: " + FLAGS_dataset + " in " + place_.directory + " (" +
                                place_.origin + ")"});
  }

  chainmail::ImageSet read(const std::string& part) {
    return chainmail::on_all_ranks(
        *comm_, [&] { return chainmail::read_image_set(place_.directory, part, kClasses); });
  }

  struct Batch {
    torch::Tensor y, t;
  };
  Batch forward(const chainmail::ImageSet& set, const std::vector<std::size_t>& indices) {
    const torch::Tensor rows = rows_of(indices);
    const torch::Tensor x = set.images.index_select(0, rows).flatten(1).to(torch::kFloat) / 255.0;
    return {model_->forward(x), set.labels.index_select(0, rows).to(torch::kLong)};
  }

  bool train(chainmail::Step& step) {
    // A checkpoint had it all; the last step may also be called once more for its report.
    const bool is_new = step.number() == job_->state().next_step;
    if (is_new && samples_.state().epoch >= FLAGS_epoch) return false;
    for (chainmail::Shard& shard : step.shards(samples_)) {
      const Batch batch = forward(train_, shard.indices());
      learn(shard, batch.y, batch.t);
    }
    step.commit(*optimizer_);
    if (FLAGS_interval > 0 && step.number() % FLAGS_interval == 0) save(step);
    if (!step.ends_epoch()) return true;
    report(step);
    if (FLAGS_interval == 0) save(step);
    return samples_.state().epoch < FLAGS_epoch;
  }

  void save(const chainmail::Step& step) {
    if (checkpoints_) checkpoints_->save(step.number());
  }

  void report(const chainmail::Step& step) {
    const chainmail::Metrics tested =
        job_->evaluate(static_cast<std::size_t>(test_.labels.size(0)), [this](const auto& indices) {
          const torch::NoGradGuard no_grad;
          const Batch batch = forward(test_, indices);
          return test_metrics(batch.y, batch.t);
        });
    const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
    chainmail::ReportEntry entry{samples_.state().epoch, step.number(), elapsed, tested.means()};
    entry.values.merge(step.metrics());
    chainmail::on_all_ranks(*comm_, [&] { reports_->report(entry); });
  }

  std::unique_ptr<chainmail::ElasticJob> job_;
  std::shared_ptr<chainmail::Communicator> comm_;
  chainmail::DatasetLocation place_;
  chainmail::ImageSet train_, test_;
  chainmail::ShardSampler samples_;
  torch::nn::Sequential model_{nullptr};
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  std::optional<chainmail::ReportList> reports_;
  Clock::time_point started_ = Clock::now();
  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpoints_;  // last: it refers to the rest
};

}  // namespace

void train_in_shards() { ShardedTraining().run(); }
