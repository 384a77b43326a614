// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/trainers.h"

#include <map>
#include <utility>

#include <torch/torch.h>

#include <chainmail/backend.h>
#include <chainmail/optimizer.h>

#include "examples/cpp_ddp/data_parallel.h"
#include "tools/bench/contestants/groups.h"
#include "tools/bench/step/models.h"

namespace chainmail::bench {
namespace {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        torch::nn::Sequential& model) {
  if (name == "adam") return std::make_unique<torch::optim::Adam>(model->parameters(), 1e-3);
  if (name == "sgd") {
    return std::make_unique<torch::optim::SGD>(model->parameters(),
                                               torch::optim::SGDOptions(0.01).momentum(0.9));
  }
  throw InvalidArgument("--optimizer " + name + ": use adam or sgd");
}

class ModelTrainer : public Trainer {
 public:
  ModelTrainer(std::string name, const TrainerOptions& options)
      : model_(make_model(options.model, options.pace)), name_(std::move(name)) {}
  const std::string& name() const noexcept override { return name_; }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

 protected:
  at::Tensor loss(const at::Tensor& x, const at::Tensor& t) {
    return torch::nn::functional::cross_entropy(model_->forward(x), t);
  }

  torch::nn::Sequential model_;

 private:
  std::string name_;
};

class PlainTrainer final : public ModelTrainer {
 public:
  PlainTrainer(std::string name, const TrainerOptions& options)
      : ModelTrainer(std::move(name), options),
        optimizer_(make_optimizer(options.optimizer, model_)) {}
  void step(const at::Tensor& x, const at::Tensor& t) override {
    optimizer_->zero_grad();
    loss(x, t).backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

class OurTrainer final : public ModelTrainer {
 public:
  OurTrainer(const TrainerOptions& options, const std::shared_ptr<Communicator>& communicator,
             const std::pair<const std::string, MultiNodeOptimizerOptions>& variant)
      : ModelTrainer(variant.first, options) {
    MultiNodeOptimizerOptions how = variant.second;
    how.model = &model_;
    how.bucket_bytes = options.bucket_bytes;
    optimizer_ =
        create_multi_node_optimizer(make_optimizer(options.optimizer, model_), communicator, how);
  }
  void step(const at::Tensor& x, const at::Tensor& t) override {
    optimizer_->zero_grad();
    loss(x, t).backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<MultiNodeOptimizer> optimizer_;
};

std::map<std::string, MultiNodeOptimizerOptions> our_variants() {
  return {{"ours", {}},
          {"ours-overlap", {.overlap = true}},
          {"ours-packed", {.overlap = false}},
          {"ours-double", {.double_buffering = true}},
          {"ours-unfused", {.use_fused_step = false}}};
}

// Sums a tensor as large as all gradients, where it lies.
class WireTrainer final : public Trainer {
 public:
  WireTrainer(std::string name, const TrainerOptions& options,
              c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)), name_(std::move(name)) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : make_model(options.model)->parameters()) {
      count += parameter.numel();
    }
    tensors_ = {torch::zeros({count})};
  }
  const std::string& name() const noexcept override { return name_; }
  void step(const at::Tensor& /*x*/, const at::Tensor& /*t*/) override {
    group_->allreduce(tensors_)->wait();
  }
  std::vector<at::Tensor> parameters() const override { return tensors_; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<at::Tensor> tensors_;
  std::string name_;
};

class ReducerTrainer final : public ModelTrainer {
 public:
  ReducerTrainer(std::string name, const TrainerOptions& options,
                 c10::intrusive_ptr<c10d::ProcessGroup> group)
      : ModelTrainer(std::move(name), options),
        group_(std::move(group)),
        parallel_(*model_, group_),
        optimizer_(make_optimizer(options.optimizer, model_)) {}
  void step(const at::Tensor& x, const at::Tensor& t) override {
    model_->zero_grad();  // the optimizer's own refuses gradients that are views of buckets
    parallel_.before_forward();
    const at::Tensor value = loss(x, t);
    parallel_.before_backward(value);
    value.backward();
    optimizer_->step();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  DataParallel parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

std::string trainer_names() {
  return "plain, ours, ours-overlap, ours-double, ours-unfused, ours-packed, wire, reducer-gloo, "
         "reducer-ours";
}

std::unique_ptr<Trainer> make_trainer(const std::string& name, const TrainerOptions& options,
                                      const std::shared_ptr<Communicator>& communicator) {
  if (name == "plain") return std::make_unique<PlainTrainer>(name, options);
  const std::map<std::string, MultiNodeOptimizerOptions> variants = our_variants();
  if (const auto how = variants.find(name); how != variants.end()) {
    return std::make_unique<OurTrainer>(options, communicator, *how);
  }
  if (name == "reducer-gloo" || name == "reducer-ours" || name == "wire") {
    const Ranks ranks{communicator->rank(), communicator->size(), communicator->inter_size()};
    const auto store = make_job_store();
    if (name == "wire") {
      return std::make_unique<WireTrainer>(
          name, options, make_ours(store, ranks, "auto", "native", "step/wire").group);
    }
    return std::make_unique<ReducerTrainer>(
        name, options,
        name == "reducer-gloo" ? make_gloo(store, ranks, "step/gloo").group
                               : make_ours(store, ranks, "auto", "native", "step/ours").group);
  }
  throw InvalidArgument("no trainer '" + name + "'; known are " + trainer_names());
}

}  // namespace chainmail::bench
