// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Everything that can be added to a checkpoint, as one type. Thread rules are the checkpointer's.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <chainmail/checkpoint.h>

namespace chainmail::internal {

enum class ItemScope {
  kReplicated,  ///< equal on all ranks of a set, which is checked
  kPerRank,     ///< every rank's own
  kCompared,    ///< saved once where it is equal on all ranks, else per rank
};

struct CheckpointItem {
  std::string name;
  ItemScope scope = ItemScope::kReplicated;
  std::function<CheckpointState()> save;
  /// `ranks` has one state, or one for each rank of the job that saved. `rank` is this one.
  std::function<void(const std::vector<CheckpointState>& ranks, int rank)> load;
  /// Before either, on all ranks; may communicate, may be empty.
  std::function<void()> prepare = {};
  /// After all items were loaded on all ranks; may communicate, may be empty.
  std::function<void()> finish = {};
};

/// This rank's state out of those of several ranks; in a larger job, the one that it starts from.
[[nodiscard]] const CheckpointState& own_state(const std::vector<CheckpointState>& ranks, int rank);

[[nodiscard]] CheckpointItem parameters_item(const std::string& name, const ModuleRef& model);
[[nodiscard]] CheckpointItem buffers_item(const std::string& name, const ModuleRef& model);
[[nodiscard]] CheckpointItem optimizer_item(const std::string& name,
                                            torch::optim::Optimizer& optimizer);
/// With state() of the multi-node optimizer; flushes it first.
[[nodiscard]] CheckpointItem multi_node_optimizer_item(const std::string& name,
                                                       MultiNodeOptimizer& optimizer);
[[nodiscard]] CheckpointItem generator_item(const std::string& name,
                                            const at::Generator& generator);

}  // namespace chainmail::internal
