// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A residual network on CIFAR-10, trained by ranks that come and go: under `launcher --elastic`
// hosts join and leave between two steps, and the result has the bits of a calm job. Everywhere
// else it is a job of fixed size, with the same bits.
//
// Exit code: 0; 1 when training fails; 2 for a command line that cannot be carried out.

#include <gflags/gflags.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../common/cifar.h"
#include "../common/job.h"
#include "../common/resnet.h"
#include "../common/shards.h"
#include "shapes.h"

DEFINE_string(model, "resnet20", kResnets);
DEFINE_string(data, "", "folder of CIFAR-10's binary files; otherwise looked for");
DEFINE_string(make_data, "",
              "draw images, write them to this folder as CIFAR-10 has them, and end");
DEFINE_int64(samples, 10000,
             "images to train with that --make_data draws, and a fifth to test with");
DEFINE_string(out, "result",
              "folder for log and checkpoints; training goes on from the newest in OUT/snapshot");
DEFINE_string(communicator, "auto",
              "naive, flat, hierarchical, two_dimensional, single_node or auto");
DEFINE_string(allreduce_grad_dtype, "", "of gradients between nodes: float16, bfloat16, float32");
DEFINE_uint32(shards, 0,
              "parts of each step, no fewer than ranks; 0: what the launcher says, or 8");
DEFINE_int64(batch, 256, "samples of a step, of all shards together");
DEFINE_bool(batch_per_rank, false,
            "--batch is of each rank: more ranks take larger steps, and the learning rate follows");
DEFINE_int64(ramp_steps, 50, "with --batch_per_rank: steps in which the learning rate does so");
DEFINE_int64(epoch, 20, "times through the training data");
DEFINE_double(lr, 0.1, "learning rate of the first step; from there it falls to zero");
DEFINE_double(weight_decay, 1e-4, "of all parameters");
DEFINE_uint64(seed, 0, "of weights, order, augmentation and of what --make_data draws");
DEFINE_bool(verify, false, "end with a digest of the parameters; fail when ranks differ");

namespace {

void check_flags() {
  if (FLAGS_batch < 1 || FLAGS_epoch < 0 || FLAGS_ramp_steps < 0) {
    throw flags::UsageError("--batch must be at least 1, --epoch and --ramp_steps at least 0");
  }
  if (FLAGS_samples < 5 || FLAGS_samples % 5 != 0) {
    throw flags::UsageError("--samples must be a multiple of 5, for five files");
  }
  if (!is_resnet(FLAGS_model)) {
    throw flags::UsageError("--model " + FLAGS_model + ": use " + kResnets);
  }
  flags::check_at_least(0, "lr", FLAGS_lr);
  flags::check_at_least(0, "weight_decay", FLAGS_weight_decay);
  flags::check_given("out", FLAGS_out);
}

// The same number everywhere, so that every way to start the program gives the same bits.
chainmail::ElasticJobOptions job_options() {
  constexpr std::uint32_t kUsualShards = 8;
  const bool is_launchers = FLAGS_shards == 0 && std::getenv("CHAINMAIL_SHARDS") != nullptr;
  const std::uint32_t own = FLAGS_shards == 0 ? kUsualShards : FLAGS_shards;
  return {.shards = is_launchers ? 0 : own, .seed = FLAGS_seed, .communicator = FLAGS_communicator};
}

class Training {
 public:
  Training()
      : job_(join_in_shards(job_options(), FLAGS_allreduce_grad_dtype)),
        comm_(job_->communicator()),
        place_(chainmail::on_all_ranks(*comm_, [] { return find_cifar(FLAGS_data); })),
        data_(chainmail::on_all_ranks(*comm_, [&] { return read_cifar(place_); })),
        samples_(static_cast<std::size_t>(data_.train.t.size(0)),
                 {.batch = FLAGS_batch,
                  .seed = FLAGS_seed,
                  .policy = FLAGS_batch_per_rank ? chainmail::BatchPolicy::kPerRank
                                                 : chainmail::BatchPolicy::kPerStep,
                  .ramp_steps = FLAGS_ramp_steps}) {
    torch::manual_seed(FLAGS_seed);
    model_ = make_resnet(FLAGS_model, kClasses);
    optimizer_ = chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(
            model_->parameters(),
            torch::optim::SGDOptions(FLAGS_lr).momentum(0.9).weight_decay(FLAGS_weight_decay)),
        comm_, {.model = &model_});
    job_->add("model", &model_);
    job_->add("optimizer", *optimizer_);
    // A host with other images is refused before it joins, as one whose state has other names is.
    job_->add("samples of images " + std::to_string(digest_of_images()), samples_);
    const auto steps_per_epoch = static_cast<std::int64_t>(samples_.steps_per_epoch());
    job_->checkpoint("snapshot", {.path = FLAGS_out}, steps_per_epoch);
    job_->on_world([this](const chainmail::Membership& world) { begin_world(world); });
  }

  void run() {
    job_->run([this](chainmail::Step& step) { return train(step); });
    if (reports_) reports_->finish();
    if (FLAGS_verify) {
      std::vector<torch::Tensor> state = model_->parameters();
      for (const torch::Tensor& statistics : model_->buffers()) state.push_back(statistics);
      print_digest(*comm_, state);
    }
    comm_->finalize();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t digest_of_images() {
    try {
      return chainmail::verify_equal(*comm_,
                                     {data_.train.x, data_.train.t, data_.test.x, data_.test.t});
    } catch (const chainmail::MismatchError& error) {
      throw chainmail::MismatchError("the images in " + place_ +
                                     " are not those of the other ranks: " + error.what());
    }
  }

  // What refers to the other ranks is made anew.
  void begin_world(const chainmail::Membership& world) {
    if (world.generation == 1) {
      print_banner(*comm_,
                   {"Model: " + FLAGS_model,
                    "Num Minibatch-size: " + std::to_string(FLAGS_batch) +
                        (FLAGS_batch_per_rank ? " of each rank in " : " in ") +
                        std::to_string(job_->shards()) + " shards",
                    "Num epoch: " + std::to_string(FLAGS_epoch),
                    "Dataset: " + place_ + ", " + std::to_string(samples_.size()) + " images"});
    } else if (world.rank == 0) {
      std::cout << "step " << world.next_step << ": " << world.size << " ranks" << std::endl;
    }
    reports_.emplace(*comm_);
    add_reports(*reports_, *comm_, FLAGS_out,
                {"epoch", "iteration", "lr", "main/loss", "validation/main/loss", "main/accuracy",
                 "validation/main/accuracy", "elapsed_time"},
                samples_.state().epoch);
  }

  // Of the step's number alone, with nothing but arithmetic, which is alike on all processors; or
  // of the samples before it and of the ranks that take it.
  double learning_rate(std::int64_t step) const {
    const auto epochs = static_cast<double>(FLAGS_epoch);
    if (FLAGS_batch_per_rank) {
      const chainmail::ShardSamplerState at = samples_.state();
      const double part = static_cast<double>(at.position) / static_cast<double>(samples_.size());
      const double done = (static_cast<double>(at.epoch) + part) / epochs;
      return FLAGS_lr * samples_.batch_scale() * (1 - done);
    }
    const auto steps = static_cast<double>(samples_.steps_per_epoch()) * epochs;
    return FLAGS_lr * (1 - static_cast<double>(step - 1) / steps);
  }

  bool train(chainmail::Step& step) {
    // A checkpoint had it all; the last step may also be called once more for its report.
    const bool is_new = step.number() == job_->state().next_step;
    if (is_new && samples_.state().epoch >= FLAGS_epoch) return false;
    model_->train();
    chainmail::Shards shards = step.shards(samples_);
    const double rate = learning_rate(step.number());
    for (auto& group : optimizer_->actual_optimizer().param_groups()) group.options().set_lr(rate);
    for (chainmail::Shard& shard : shards) {
      const torch::Tensor rows = rows_of(shard.indices());
      learn(shard, model_->forward(take_batch(data_.train, rows, /*augments=*/true)),
            data_.train.t.index_select(0, rows));
    }
    step.commit(*optimizer_);
    if (!step.ends_epoch()) return true;
    report(step, rate);
    return samples_.state().epoch < FLAGS_epoch;
  }

  void report(const chainmail::Step& step, double rate) {
    model_->eval();
    const chainmail::Metrics metrics =
        job_->evaluate(static_cast<std::size_t>(data_.test.t.size(0)), [this](const auto& indices) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor rows = rows_of(indices);
          return test_metrics(model_->forward(take_batch(data_.test, rows, /*augments=*/false)),
                              data_.test.t.index_select(0, rows));
        });
    const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
    chainmail::ReportEntry entry{samples_.state().epoch, step.number(), elapsed, metrics.means()};
    entry.values.merge(step.metrics());
    entry.values["lr"] = rate;
    chainmail::on_all_ranks(*comm_, [&] { reports_->report(entry); });
  }

  std::unique_ptr<chainmail::ElasticJob> job_;
  std::shared_ptr<chainmail::Communicator> comm_;
  std::string place_;
  Cifar data_;
  chainmail::ShardSampler samples_;
  torch::nn::Sequential model_{nullptr};
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  std::optional<chainmail::ReportList> reports_;
  Clock::time_point started_ = Clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "train_cifar_elastic",
      .what = "Trains a residual network on CIFAR-10 with ranks that may come and go."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    check_flags();
    if (FLAGS_make_data.empty()) {
      Training().run();
    } else {
      write_shapes(FLAGS_make_data, FLAGS_samples, FLAGS_seed);
    }
    return 0;
  });
}
