// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model's buffers in a job of shards, such as the running statistics of a BatchNorm: every shard
// starts from those of the last commit, and what the shards make of them is averaged, weighted by
// samples, along their tree. Whole numbers, such as the count of batches, take their largest value.
//
// One thread per rank. Collective: exchange().

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/engine/group.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/shards/shard_progress.h"
#include "plugin/train/shards/shard_stack.h"

namespace chainmail::internal {

class ShardBuffers {
 public:
  explicit ShardBuffers(std::shared_ptr<const ShardProgress> progress)
      : progress_(std::move(progress)) {}

  /// Buffers on the CPU; those that are there already are left out.
  void add(const std::vector<NamedTensor>& buffers);
  /// The cut has changed.
  void enter_world() { stack_.reset(); }
  /// A step begins: they are as they were committed, or as a checkpoint has made them since.
  void begin();
  /// Before a shard: as they were then.
  void restore();
  /// After a shard of that weight.
  void take(double weight);
  /// After a shard without samples.
  void take_nothing();
  /// After the last shard: averages those of all shards. Collective.
  void exchange(ops::Group& group);
  /// Makes that average the model's buffers.
  void commit();
  /// An exception has ended the step: as they were committed.
  void drop();

 private:
  bool is_empty() const noexcept { return real_.empty() && whole_.empty(); }

  std::shared_ptr<const ShardProgress> progress_;
  std::vector<at::Tensor> real_;   ///< floating-point ones
  std::vector<at::Tensor> whole_;  ///< the others
  at::Tensor committed_;           ///< real_ at the step's begin, one behind the other, in float64
  at::Tensor committed_whole_;     ///< whole_, in int64
  at::Tensor largest_whole_;       ///< of this rank's shards
  at::Tensor flat_;                ///< of the shard in hand
  std::optional<ShardStack> stack_;
};

}  // namespace chainmail::internal
