// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ways to train one model with all ranks of the job; each has its own copy of the model.
//
// Collective: every rank makes the same trainers and calls their steps alike.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

#include "tools/bench/step/models.h"

namespace chainmail::bench {

struct TrainerOptions {
  std::string model = "mlp";
  std::string optimizer = "adam";  ///< adam or sgd (momentum 0.9)
  Pace pace;                       ///< of the models `paced` and `device`
  /// Of ours where they overlap; unset: as its users get them.
  std::optional<std::int64_t> bucket_bytes = std::nullopt;
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual const std::string& name() const noexcept = 0;
  /// zero_grad, forward, cross entropy, backward with exchange, optimizer step. x: [batch, 784]
  /// float; t: [batch] int64.
  virtual void step(const at::Tensor& x, const at::Tensor& t) = 0;
  /// After the last step, on all ranks: what is on its way arrives, and nodes that step by
  /// themselves meet.
  virtual void end() {}
  /// Of this rank's copy.
  virtual std::vector<at::Tensor> parameters() const = 0;
  /// Of the last step: what the optimizer's own step() took, after a backward that exchanges. Ours
  /// only.
  virtual std::chrono::duration<double, std::micro> update_time() const { return {}; }
  /// What this rank keeps of Adam's moments, in bytes. Ours only.
  virtual std::int64_t state_bytes() const { return 0; }
};

/// Names that make_trainer knows, with what they are, for the help text.
[[nodiscard]] std::string trainer_names();

/// `name` is one of
///   plain           torch's optimizer, no exchange: each rank for itself
///   alone           ours over a communicator of each rank by itself: the same kernels, no exchange
///   ours            MultiNodeOptimizer as its users get it
///   ours-overlap, ours-double, ours-unfused, ours-packed   the same with one option changed
///   ours-node       optimizers shared inside nodes (Sharding::kNode)
///   ours-shared     with one copy of the parameters per node
///   ours-freed      and gradients freed when their means are known
///   ours-all        optimizers shared by all ranks (Sharding::kAll)
///   local-H-F-D     H local steps in F fragments that have D steps to travel in
///   all of these +WIRE   with that wire: ours+int8, ours-double+int4, local-32-4-4+int8
///   accumulate      ours, in two backwards of half the batch
///   sharded         a model of Sharded layers, and torch's optimizer for their slices
///   shards, shards-2   an ElasticJob with one or two shards per rank
///   wire            as many bytes as the model's gradients, exchanged by ours and nothing else
///   reducer-gloo    c10d::Reducer, which torch's DistributedDataParallel is made of, over Gloo
///   reducer-ours    the same over a process group of Chainmail
/// Throws InvalidArgument for others.
[[nodiscard]] std::unique_ptr<Trainer> make_trainer(
    const std::string& name, const TrainerOptions& options,
    const std::shared_ptr<Communicator>& communicator);

}  // namespace chainmail::bench
