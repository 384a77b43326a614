// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/trainers.h"

#include <cinttypes>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <chainmail/backend.h>
#include <chainmail/elastic.h>
#include <chainmail/nn/sharded.h>
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
  OurTrainer(std::string name, const TrainerOptions& options,
             const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions how)
      : ModelTrainer(std::move(name), options) {
    how.model = &model_;
    how.bucket_bytes = options.bucket_bytes;
    optimizer_ =
        create_multi_node_optimizer(make_optimizer(options.optimizer, model_), communicator, how);
  }
  void step(const at::Tensor& x, const at::Tensor& t) override {
    optimizer_->zero_grad();
    loss(x, t).backward();
    const auto begin = std::chrono::steady_clock::now();
    optimizer_->step();
    update_time_ = std::chrono::steady_clock::now() - begin;
  }
  void end() override { optimizer_->flush(); }
  std::chrono::duration<double, std::micro> update_time() const override { return update_time_; }
  std::int64_t state_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& [key, state] : optimizer_->actual_optimizer().state()) {
      const auto* const adam = dynamic_cast<const torch::optim::AdamParamState*>(state.get());
      if (adam != nullptr) bytes += adam->exp_avg().nbytes() + adam->exp_avg_sq().nbytes();
    }
    return static_cast<std::int64_t>(bytes);
  }

 private:
  std::unique_ptr<MultiNodeOptimizer> optimizer_;
  std::chrono::duration<double, std::micro> update_time_{};
};

std::map<std::string, MultiNodeOptimizerOptions> our_variants() {
  return {
      {"ours", {}},
      {"ours-overlap", {.overlap = true}},
      {"ours-packed", {.overlap = false}},
      {"ours-double", {.double_buffering = true}},
      {"ours-unfused", {.use_fused_step = false}},
      {"ours-node", {.shard = Sharding::kNode}},
      {"ours-shared", {.shard = Sharding::kNode, .share_parameters = true}},
      {"ours-freed", {.shard = Sharding::kNode, .share_parameters = true, .free_gradients = true}},
      {"ours-all", {.shard = Sharding::kAll}}};
}

// Ours by its name, which may end with a wire: "ours-double+int8", "local-32-4-4+int8".
std::optional<MultiNodeOptimizerOptions> find_ours(const std::string& name) {
  const std::size_t plus = name.find('+');
  const std::string way = name.substr(0, plus);
  MultiNodeOptimizerOptions options;
  LocalSteps local;
  int length = 0;
  if (std::sscanf(way.c_str(), "local-%" SCNd64 "-%" SCNd64 "-%" SCNd64 "%n", &local.steps,
                  &local.fragments, &local.delay, &length) == 3 &&
      way.size() == static_cast<std::size_t>(length)) {
    options.local_steps = local;
  } else {
    const std::map<std::string, MultiNodeOptimizerOptions> variants = our_variants();
    const auto found = variants.find(way);
    if (found == variants.end()) return std::nullopt;
    options = found->second;
  }
  if (plus != std::string::npos) options.wire = name.substr(plus + 1);
  return options;
}

// One step in two backwards of half a batch each, which one exchange ends.
class AccumulatingTrainer final : public ModelTrainer {
 public:
  AccumulatingTrainer(std::string name, const TrainerOptions& options,
                      const std::shared_ptr<Communicator>& communicator)
      : ModelTrainer(std::move(name), options),
        optimizer_(create_multi_node_optimizer(make_optimizer(options.optimizer, model_),
                                               communicator, {.model = &model_})) {}
  void step(const at::Tensor& x, const at::Tensor& t) override {
    optimizer_->zero_grad();
    const std::vector<at::Tensor> inputs = x.tensor_split(2);
    const std::vector<at::Tensor> targets = t.tensor_split(2);
    {
      const NoSync own = optimizer_->no_sync();
      (loss(inputs[0], targets[0]) / 2).backward();
    }
    (loss(inputs[1], targets[1]) / 2).backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<MultiNodeOptimizer> optimizer_;
};

// A job of one or two shards per rank, with a communicator of its own.
class ShardTrainer final : public ModelTrainer {
 public:
  ShardTrainer(std::string name, const TrainerOptions& options, const Communicator& communicator,
               std::uint32_t shards_per_rank)
      : ModelTrainer(std::move(name), options),
        job_(create_elastic_job({.shards = shards_per_rank * ranks_of(communicator),
                                 .threads = 0,
                                 .communicator = communicator.name()})),
        optimizer_(create_multi_node_optimizer(make_optimizer(options.optimizer, model_),
                                               job_->communicator(), {.model = &model_})),
        shards_per_rank_(shards_per_rank) {
    job_->add("model", &model_);
  }
  void step(const at::Tensor& x, const at::Tensor& t) override {
    const auto size = static_cast<std::size_t>(x.size(0)) * ranks_of(*job_->communicator());
    if (!samples_) {
      samples_.emplace(size, ShardSamplerOptions{.batch = static_cast<std::int64_t>(size)});
    }
    const std::vector<at::Tensor> inputs = x.tensor_split(shards_per_rank_);
    const std::vector<at::Tensor> targets = t.tensor_split(shards_per_rank_);
    job_->run([&](Step& step) {
      std::size_t i = 0;
      for (Shard& shard : step.shards(*samples_)) {
        shard.backward(loss(inputs[i], targets[i]));
        ++i;
      }
      step.commit(*optimizer_);
      return false;
    });
  }

 private:
  static std::uint32_t ranks_of(const Communicator& communicator) {
    return static_cast<std::uint32_t>(communicator.size());
  }

  std::unique_ptr<ElasticJob> job_;
  std::unique_ptr<MultiNodeOptimizer> optimizer_;
  std::optional<ShardSampler> samples_;
  std::uint32_t shards_per_rank_;
};

// Whose slices are different on each rank.
class ShardedTrainer final : public ModelTrainer {
 public:
  ShardedTrainer(std::string name, const TrainerOptions& options,
                 const std::shared_ptr<Communicator>& communicator)
      : ModelTrainer(std::move(name), options) {
    model_ = create_sharded_model(model_, communicator);
    optimizer_ = make_optimizer(options.optimizer, model_);
  }
  std::vector<at::Tensor> parameters() const override { return {}; }
  void step(const at::Tensor& x, const at::Tensor& t) override {
    optimizer_->zero_grad();
    loss(x, t).backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

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
  return "plain, alone, ours, ours-overlap, ours-double, ours-unfused, ours-packed, ours-node, "
         "ours-shared, ours-freed, ours-all, local-STEPS-FRAGMENTS-DELAY (from ours on also with a "
         "wire, such as ours+int8), accumulate, shards, shards-2, sharded, wire, reducer-gloo, "
         "reducer-ours";
}

std::unique_ptr<Trainer> make_trainer(const std::string& name, const TrainerOptions& options,
                                      const std::shared_ptr<Communicator>& communicator) {
  if (name == "plain") return std::make_unique<PlainTrainer>(name, options);
  if (const auto how = find_ours(name)) {
    return std::make_unique<OurTrainer>(name, options, communicator, *how);
  }
  if (name == "alone") {
    const std::shared_ptr<Communicator> own = communicator->split(communicator->rank(), 0);
    return std::make_unique<OurTrainer>(name, options, own, MultiNodeOptimizerOptions{});
  }
  if (name == "accumulate") {
    return std::make_unique<AccumulatingTrainer>(name, options, communicator);
  }
  if (name == "sharded") return std::make_unique<ShardedTrainer>(name, options, communicator);
  if (name == "shards" || name == "shards-2") {
    return std::make_unique<ShardTrainer>(name, options, *communicator, name == "shards" ? 1 : 2);
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
