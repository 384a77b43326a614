// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The optimizer that averages gradients over ranks before each step; ChainerMN's
// create_multi_node_optimizer.

#pragma once

#include <memory>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <chainmail/communicator.h>

namespace chainmail {

struct MultiNodeOptimizerOptions {
  /// Its parameters are averaged and its parameters and buffers broadcast at construction; when
  /// null, the optimizer's own parameters, and no buffers.
  std::shared_ptr<torch::nn::Module> model;
  /// Undefined gradients of trainable parameters count as zero; false leaves them out, and ranks
  /// that differ get a MismatchError that names parameter and ranks.
  bool zero_fill = true;
};

/// Wraps any torch optimizer. One thread per rank; step() is collective.
class CHAINMAIL_API MultiNodeOptimizer {
 public:
  MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                     std::shared_ptr<Communicator> communicator,
                     MultiNodeOptimizerOptions options);
  ~MultiNodeOptimizer();
  MultiNodeOptimizer(const MultiNodeOptimizer&) = delete;
  MultiNodeOptimizer& operator=(const MultiNodeOptimizer&) = delete;

  void zero_grad(bool set_to_none = true);
  /// Replaces every gradient by its mean over the ranks, then steps the wrapped optimizer. No
  /// gradient is dropped, the first one included.
  void step();
  /// The mean alone, without a step.
  void allreduce_grad();
  torch::optim::Optimizer& actual_optimizer() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Broadcasts parameters, buffers and optimizer state of rank 0 (bit for bit) and returns the
/// averaging optimizer. Collective.
/// @throws MismatchError  ranks have different parameters (names, shapes, dtypes)
[[nodiscard]] CHAINMAIL_API std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options = {});

}  // namespace chainmail
