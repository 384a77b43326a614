// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank in training, with everything that a checkpoint has to bring back. One thread per rank.

#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <chainmail/checkpoint.h>
#include <chainmail/train/agreement.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/checkpoint/items/items.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail::testing {

using Comm = std::shared_ptr<Communicator>;
using Shape = std::vector<int>;  // ranks per node

inline void on_ranks(const Shape& shape, const std::function<void(Comm)>& body) {
  with_communicator(shape, "hierarchical", {}, body);
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t units)
      : l1(register_module("l1", torch::nn::Linear(6, units))),
        norm(register_module("norm", torch::nn::BatchNorm1d(units))),
        l2(register_module("l2", torch::nn::Linear(units, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return l2(torch::relu(norm(l1(x)))); }
  torch::nn::Linear l1;
  torch::nn::BatchNorm1d norm;  ///< its buffers differ between ranks
  torch::nn::Linear l2;
};
TORCH_MODULE(Net);

enum class Kind { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad };

inline std::unique_ptr<torch::optim::Optimizer> make_optimizer(Kind kind, Net& net) {
  using namespace torch::optim;
  switch (kind) {
    case Kind::kSgd:
      return std::make_unique<SGD>(net->parameters(), SGDOptions(0.1).momentum(0.9));
    case Kind::kAdam:
      return std::make_unique<Adam>(net->parameters(), AdamOptions(0.01));
    case Kind::kAdamW:
      return std::make_unique<AdamW>(net->parameters(), AdamWOptions(0.01).amsgrad(true));
    case Kind::kRmsprop:
      return std::make_unique<RMSprop>(net->parameters(), RMSpropOptions(0.01).momentum(0.5));
    case Kind::kAdagrad:
      return std::make_unique<Adagrad>(net->parameters(), AdagradOptions(0.01));
  }
  return nullptr;
}

// Trains on numbers that it draws.
struct Trainee {
  Trainee(const std::shared_ptr<Communicator>& comm, Kind kind, bool double_buffering,
          std::int64_t units = 4)
      : communicator(comm),
        generator(at::detail::createCPUGenerator(static_cast<std::uint64_t>(comm->rank() + 7))),
        net(units) {
    optimizer = create_multi_node_optimizer(make_optimizer(kind, net), comm,
                                            {.model = &net, .double_buffering = double_buffering});
  }

  void add_to(MultiNodeCheckpointer& checkpointer) {
    checkpointer.add("model", &net);
    checkpointer.add("optimizer", *optimizer);
    checkpointer.add("rng", generator);
    checkpointer.add("steps", &steps);
    checkpointer.add("loss", &loss);
    checkpointer.add("note", &note);
    checkpointer.add("position",
                     PerRankCallbacks{.save =
                                          [this] {
                                            CheckpointState state;
                                            state.set_integer("seen", seen);
                                            return state;
                                          },
                                      .load = [this](const auto& ranks) { share(ranks); }});
  }

  // Samples that all ranks have seen, dealt out anew.
  void share(const std::vector<CheckpointState>& ranks) {
    std::int64_t sum = 0;
    for (const CheckpointState& state : ranks) sum += state.integer("seen");
    old_world = static_cast<int>(ranks.size());
    seen = sum / communicator->size() + (communicator->rank() < sum % communicator->size() ? 1 : 0);
  }

  void train(int count) {
    for (int i = 0; i < count; ++i) {
      optimizer->zero_grad();
      const torch::Tensor x = at::rand({5, 6}, generator, torch::kFloat);
      const torch::Tensor value = net->forward(x).square().mean();
      value.backward();
      optimizer->step();
      loss = value.item<double>();
      note = "after " + std::to_string(++steps);
      seen += 5;
    }
  }

  // All that must be equal, bit for bit.
  std::uint64_t fingerprint() {
    std::vector<torch::Tensor> all = net->parameters();
    for (const torch::Tensor& buffer : net->buffers()) all.push_back(buffer);
    const CheckpointState state =
        internal::optimizer_item("o", optimizer->actual_optimizer()).save();
    for (const auto& [key, value] : state.values()) {
      if (const auto* const tensor = std::get_if<at::Tensor>(&value)) all.push_back(*tensor);
    }
    all.push_back(generator.get_state());
    all.push_back(torch::tensor({loss}, torch::kDouble));
    all.push_back(torch::tensor({steps, seen}, torch::kLong));
    const torch::NoGradGuard no_grad;
    return digest(all);
  }

  std::shared_ptr<Communicator> communicator;
  at::Generator generator;
  Net net;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
  std::int64_t steps = 0;
  std::int64_t seen = 0;
  double loss = 0;
  std::string note;
  int old_world = 0;
};

}  // namespace chainmail::testing
