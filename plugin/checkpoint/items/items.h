// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Everything that can be added to a checkpoint, as one type. Thread rules are the checkpointer's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/store/parts.h"

namespace chainmail::internal {

enum class ItemScope {
  kReplicated,  ///< equal on all ranks of a set, which is checked
  kPerRank,     ///< every rank's own
  kCompared,    ///< saved once where it is equal on all ranks, else per rank
};

/// What one item gets of a generation.
struct SavedStates {
  std::vector<CheckpointState> ranks;  ///< one, or one for each rank of the job that saved
  int rank = 0;                        ///< this one
  /// This rank's; in a larger job, the one that it starts from.
  [[nodiscard]] const CheckpointState& own() const {
    return ranks.at(static_cast<std::size_t>(rank) % ranks.size());
  }
};

/// What one rank has of tensors that lie in parts (store/parts.h).
struct RankParts {
  CheckpointState entries;                        ///< under range_name()
  std::map<std::string, std::uint64_t> elements;  ///< of each tensor, whole
  std::uint64_t slice = 0;                        ///< ranks with the same one have the same parts
  bool is_copy = false;                           ///< another rank writes them
};

using PartTensors = std::map<std::string, PartTensor>;

/// What this rank wants of the tensors in parts.
struct PartWishes {
  std::vector<PartWish> wishes;
  /// Once all are fulfilled, and when there are none. Where they go lives as long as this.
  std::function<void()> take;
};

struct CheckpointItem {
  std::string name;
  ItemScope scope = ItemScope::kReplicated;
  std::function<CheckpointState()> save;
  std::function<void(const SavedStates& saved)> load;
  /// Before either, on all ranks; may communicate, may be empty.
  std::function<void()> prepare = {};
  /// After all items were loaded on all ranks; may communicate, may be empty.
  std::function<void()> finish = {};
  /// This rank's parts, after save(); may be empty.
  std::function<RankParts()> save_parts = {};
  /// After finish(), with all tensors in parts that are the item's, in this rank's replica set; may
  /// be empty.
  std::function<PartWishes(const PartTensors& saved)> wish_parts = {};
  /// Of what these ranks of the job have together: where they are all of one replica set of
  /// several, load() gets what ranks of that set have saved by themselves.
  std::vector<int> job_ranks = {};
  /// Ranks of all sets together have its parts, under names of their own, where it is not of one of
  /// several sets.
  bool has_parts_in_all_sets = false;
  /// Of a replicated one, for a checkpoint that has one of each rank: why not. Empty: it is
  /// ignored.
  std::string refusal_of_many = {};
};

[[nodiscard]] CheckpointItem parameters_item(const std::string& name, const ModuleRef& model);
[[nodiscard]] CheckpointItem buffers_item(const std::string& name, const ModuleRef& model);
[[nodiscard]] CheckpointItem optimizer_item(const std::string& name,
                                            torch::optim::Optimizer& optimizer);
/// With state() of the multi-node optimizer; flushes it first.
[[nodiscard]] CheckpointItem multi_node_optimizer_item(const std::string& name,
                                                       MultiNodeOptimizer& optimizer);
[[nodiscard]] CheckpointItem callbacks_item(const std::string& name, CheckpointCallbacks callbacks);
[[nodiscard]] CheckpointItem generator_item(const std::string& name,
                                            const at::Generator& generator);

}  // namespace chainmail::internal
