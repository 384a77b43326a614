// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where a rank is among its shards of a step: what the job that hands them out tells those who
// exchange their gradients.
//
// One thread per rank.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/shard_tree.h"

namespace chainmail::internal {

class GradientExchange;
class ModelExchange;

struct ShardProgress {
  std::shared_ptr<const ops::ShardCut> cut;  ///< the same on all ranks
  int rank = 0;
  /// The shard whose backward may come now: its samples over those of the step. Nothing between
  /// shards, where a backward belongs to none.
  std::optional<double> weight;
  bool is_in_step = false;     ///< between the first shard and the commit, or what ends the step
  bool is_committing = false;  ///< the optimizer may step
  std::vector<GradientExchange*> exchanges;  ///< that sum over shards; each takes itself off again
  std::vector<ModelExchange*> models;        ///< whose they are, in the order of creation

  /// How many shards of a step are this rank's.
  [[nodiscard]] std::uint32_t own_shards() const {
    const auto index = static_cast<std::size_t>(rank);
    return cut->bounds.at(index + 1) - cut->bounds.at(index);
  }
};

}  // namespace chainmail::internal
