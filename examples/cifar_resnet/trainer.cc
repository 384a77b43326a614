// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "trainer.h"

#include <chrono>
#include <numeric>
#include <optional>
#include <random>

#include "../common/cifar.h"
#include "../common/job.h"
#include "../common/resnet.h"

namespace nn = torch::nn;

namespace {

using Clock = std::chrono::steady_clock;

chainmail::Metrics evaluate(nn::Sequential& model, const Images& images,
                            const torch::Tensor& indices, std::int64_t batchsize) {
  const torch::NoGradGuard no_grad;
  model->eval();
  chainmail::Metrics metrics;
  for (const torch::Tensor& picked : indices.split(batchsize)) {
    const torch::Tensor t = images.t.index_select(0, picked);
    const torch::Tensor y = model->forward(take_batch(images, picked, false));
    add_batch(metrics, "validation/", y, t, nn::functional::cross_entropy(y, t));
  }
  model->train();
  return metrics;
}

class Trainer {
 public:
  Trainer(const Options& options, std::shared_ptr<chainmail::Communicator> comm, Cifar data);
  void run();

 private:
  chainmail::Metrics train_epoch(std::int64_t epoch);

  Options options_;
  std::shared_ptr<chainmail::Communicator> comm_;
  Cifar data_;
  nn::Sequential model_{nullptr};
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  std::vector<std::int64_t> train_indices_;
  torch::Tensor test_indices_;
  chainmail::ReportList reports_;
  std::int64_t iteration_ = 0;
};

Trainer::Trainer(const Options& options, std::shared_ptr<chainmail::Communicator> comm, Cifar data)
    : options_(options), comm_(std::move(comm)), data_(std::move(data)), reports_(*comm_) {
  torch::manual_seed(options_.seed);
  model_ = make_resnet(options_.model, kClasses);
  if (options_.mnbn) model_ = chainmail::create_mnbn_model(model_, comm_);
  optimizer_ = chainmail::create_multi_node_optimizer(
      std::make_unique<torch::optim::SGD>(
          model_->parameters(),
          torch::optim::SGDOptions(options_.lr).momentum(0.9).weight_decay(options_.weight_decay)),
      comm_, {.model = &model_, .double_buffering = options_.double_buffering});
  train_indices_ = chainmail::scatter_indices(data_.train.x.size(0), comm_,
                                              {.shuffle = true, .seed = options_.seed})
                       .indices;
  test_indices_ = torch::tensor(
      chainmail::scatter_indices(data_.test.x.size(0), comm_, {.force_equal_length = false})
          .indices,
      torch::kLong);
  add_reports(reports_, *comm_, options_.out,
              {"epoch", "iteration", "lr", "main/loss", "validation/main/loss", "main/accuracy",
               "validation/main/accuracy", "elapsed_time"});
  // Every rank moves and mirrors its images in a way of its own.
  torch::manual_seed(options_.seed + 1 + static_cast<std::uint64_t>(comm_->rank()));
}

chainmail::Metrics Trainer::train_epoch(std::int64_t epoch) {
  std::mt19937_64 generator(options_.seed + static_cast<std::uint64_t>(epoch));
  std::shuffle(train_indices_.begin(), train_indices_.end(), generator);
  chainmail::Metrics metrics;
  const std::vector<torch::Tensor> batches =
      torch::tensor(train_indices_, torch::kLong).split(options_.batchsize);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const double done = static_cast<double>(i) / static_cast<double>(batches.size());
    const double rate = learning_rate(options_, comm_->size(), static_cast<double>(epoch) + done);
    for (auto& group : optimizer_->actual_optimizer().param_groups()) group.options().set_lr(rate);
    const torch::Tensor x = take_batch(data_.train, batches[i], true);
    const torch::Tensor t = data_.train.t.index_select(0, batches[i]);
    optimizer_->zero_grad();
    const torch::Tensor y = model_->forward(x);
    const torch::Tensor loss = nn::functional::cross_entropy(y, t);
    loss.backward();
    optimizer_->step();
    add_batch(metrics, "", y, t, loss);
    ++iteration_;
  }
  optimizer_->flush();
  return metrics;
}

void Trainer::run() {
  auto evaluator = chainmail::create_multi_node_evaluator(
      [&] { return evaluate(model_, data_.test, test_indices_, options_.batchsize); }, comm_);
  chainmail::AllreducePersistent average_statistics(&model_, comm_);
  print_banner(*comm_, {"Model: " + options_.model +
                            (options_.mnbn ? ", batch normalization over all ranks" : ""),
                        "Num Minibatch-size: " + std::to_string(options_.batchsize),
                        "Num epoch: " + std::to_string(options_.epochs),
                        "Dataset: " + (options_.data.empty() ? "synthetic" : options_.data) + ", " +
                            std::to_string(data_.train.x.size(0)) + " images"});
  const Clock::time_point started = Clock::now();
  for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    const chainmail::Metrics metrics = train_epoch(epoch);
    if (!options_.mnbn) {
      average_statistics();  // every rank has its own
    }
    chainmail::ReportEntry entry{epoch + 1, iteration_, 0.0, evaluator.evaluate()};
    entry.values.merge(chainmail::aggregate_metrics(metrics, *comm_).means());
    entry.values["lr"] = learning_rate(options_, comm_->size(), static_cast<double>(epoch + 1));
    entry.elapsed_time = std::chrono::duration<double>(Clock::now() - started).count();
    chainmail::on_all_ranks(*comm_, [&] { reports_.report(entry); });
  }
  reports_.finish();
  if (options_.verify) {
    std::vector<torch::Tensor> state = model_->parameters();
    const std::vector<torch::Tensor> buffers = model_->buffers();
    state.insert(state.end(), buffers.begin(), buffers.end());
    print_digest(*comm_, state);
  }
}

}  // namespace

double learning_rate(const Options& options, int ranks, double epoch) {
  const double full = options.lr * ranks;
  if (epoch < options.warmup_epochs) {
    return options.lr + (full - options.lr) * epoch / options.warmup_epochs;
  }
  const double part = epoch / static_cast<double>(options.epochs);
  return full * (part < 0.5 ? 1 : part < 0.75 ? 0.1 : 0.01);
}

void train(const Options& options, const std::shared_ptr<chainmail::Communicator>& comm) {
  Cifar data = chainmail::on_all_ranks(*comm, [&] {
    return options.data.empty() ? make_synthetic(options.samples, options.seed)
                                : read_cifar(options.data);
  });
  Trainer(options, comm, std::move(data)).run();
  comm->finalize();
}
