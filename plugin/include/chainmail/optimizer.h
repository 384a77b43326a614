// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The optimizer that averages gradients over ranks before each step; ChainerMN's
// create_multi_node_optimizer.

#pragma once

#include <memory>

#include <torch/optim/optimizer.h>

#include <chainmail/communicator.h>
#include <chainmail/module_ref.h>

namespace chainmail {

struct MultiNodeOptimizerOptions {
  /// `&model` of a TORCH_MODULE holder or of any module, or a shared pointer. Its parameters and
  /// buffers are broadcast at construction and its gradients averaged, with those of parameters
  /// that only the optimizer knows. Null: the optimizer's own parameters, and no buffers.
  ModuleRef model = nullptr;
  /// A trainable parameter without a gradient on some ranks counts as zero there. False: that is a
  /// MismatchError on all ranks, naming parameter and ranks. In both cases a parameter without a
  /// gradient on every rank stays without one, as in a single process.
  bool zero_fill = true;
};

/// Wraps any torch optimizer. One thread per rank; every rank calls the same members in the same
/// order.
///
/// After an exchange (all communicators but "naive") the gradients are views of one buffer per
/// dtype that the next exchange writes again: clone() a gradient that is to outlive its step.
/// Sparse gradients become dense.
class CHAINMAIL_API MultiNodeOptimizer {
 public:
  /// Does what create_multi_node_optimizer says.
  MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                     std::shared_ptr<Communicator> communicator, MultiNodeOptimizerOptions options);
  ~MultiNodeOptimizer();
  MultiNodeOptimizer(const MultiNodeOptimizer&) = delete;
  MultiNodeOptimizer& operator=(const MultiNodeOptimizer&) = delete;

  /// Local: drops the gradients of model and optimizer, or sets them to zero.
  void zero_grad(bool set_to_none = true);
  /// Replaces every gradient by its mean over the ranks, then steps the wrapped optimizer. No
  /// gradient is dropped, the first one included. Parameters that were added or unfrozen since the
  /// last call are compared and broadcast first.
  /// @throws MismatchError  gradients differ between ranks and zero_fill is false
  void step();
  /// The mean alone, without a step (to clip, say, before actual_optimizer().step()).
  void allreduce_grad();
  /// Gives every rank the parameters, buffers and optimizer state of rank 0 again: after loading a
  /// file on rank 0, or after adding a layer and before its first forward. Collective.
  void synchronize();
  torch::optim::Optimizer& actual_optimizer() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Broadcasts parameters, buffers and optimizer state (hyper-parameters too) of rank 0, bit for
/// bit, and returns the averaging optimizer. Collective.
/// @throws MismatchError  ranks have different parameters (names, shapes, dtypes) or optimizers
[[nodiscard]] CHAINMAIL_API std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options = {});

}  // namespace chainmail
