// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank whose optimizer may be shared with its node. Its gradients are the same on all ranks, so
// that the number of ranks changes no bits. One thread per rank.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"
#include "tests/plugin/support/weights.h"

namespace chainmail::testing {

struct Pupil {
  Pupil(const Comm& comm, Kind kind, MultiNodeOptimizerOptions options) : net(3000) {
    fill(*net, 0.3);
    options.model = &net;
    optimizer = create_multi_node_optimizer(make_optimizer(kind, net), comm, std::move(options));
  }
  Pupil(const Comm& comm, Kind kind, Sharding shard)
      : Pupil(comm, kind, MultiNodeOptimizerOptions{.shard = shard}) {}

  void add_to(MultiNodeCheckpointer& checkpointer) {
    checkpointer.add("model", &net);
    checkpointer.add("optimizer", *optimizer);
  }

  /// One that saves this one in `path`/run.
  std::unique_ptr<MultiNodeCheckpointer> checkpointer(const Comm& comm, const std::string& path) {
    auto made = create_multi_node_checkpointer("run", comm, {.path = path});
    add_to(*made);
    return made;
  }

  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      optimizer->zero_grad();
      for (torch::Tensor& parameter : net->parameters()) {
        if (!parameter.requires_grad()) continue;
        // Means of multiples of 3/1024 over 1, 2, 3, 4, 6 and 8 ranks are exact.
        parameter.mutable_grad() =
            (parameter.detach() + step).sin().mul_(341).round_().mul_(3) / 1024;
      }
      optimizer->step();
    }
  }

  /// Of parameters and, put together, the optimizer's state.
  std::uint64_t fingerprint() {
    optimizer->gather_state();
    std::vector<torch::Tensor> all = net->parameters();
    const CheckpointState state = internal::save_optimizer_without(
        optimizer->actual_optimizer(), [](const torch::Tensor&) { return false; });
    for (const auto& [key, value] : state.values()) {
      if (const auto* const tensor = std::get_if<at::Tensor>(&value)) all.push_back(*tensor);
    }
    const torch::NoGradGuard no_grad;
    return digest(all);
  }

  /// Elements of the optimizer's state that this rank has.
  std::int64_t state_elements() {
    std::int64_t elements = 0;
    for (const auto& [key, state] : optimizer->actual_optimizer().state()) {
      const auto* const adam = dynamic_cast<const torch::optim::AdamParamState*>(state.get());
      if (adam != nullptr) elements += adam->exp_avg().numel();
    }
    return elements;
  }

  Net net;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

}  // namespace chainmail::testing
