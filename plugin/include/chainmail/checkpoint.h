// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Saving and resuming: ChainerMN's create_multi_node_checkpointer and multi_node_snapshot.
//
// A checkpoint is complete or absent, whatever call a crash, a full disk or a failing device meets:
// docs/checkpoints.md has the protocol. One thread per rank. Collective: every rank makes its
// checkpointer, adds the same things in the same order, saves and loads at the same places.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <chainmail/checkpoint_error.h>
#include <chainmail/communicator.h>
#include <chainmail/optimizer.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

class ElasticJob;
class IntervalTrigger;
class MultiNodeEarlyStoppingTrigger;
class MultiNodeIterator;
class MultiNodeSampler;
class ObservationAggregator;
class ShardSampler;
class TensorIterator;

/// Named values: what a program's own callbacks put into a checkpoint and get back. A value.
class CHAINMAIL_API CheckpointState {
 public:
  /// A tensor (numbers are tensors, too) or any bytes.
  using Value = std::variant<at::Tensor, std::string>;

  /// Dense, any device. Copied by save() after all callbacks have run.
  /// @throws InvalidArgument  an undefined tensor
  void set_tensor(const std::string& key, at::Tensor value);
  /// Sets an integer.
  void set_integer(const std::string& key, std::int64_t value);
  /// Sets a real number.
  void set_real(const std::string& key, double value);
  /// Sets any bytes.
  void set_text(const std::string& key, std::string value);

  /// Whether there is a value `key`.
  bool has(const std::string& key) const noexcept { return values_.count(key) != 0; }
  /// A tensor on the CPU, contiguous; the caller may keep it.
  /// @throws CheckpointError  no such value, or one of another kind; so for the other getters
  [[nodiscard]] at::Tensor tensor(const std::string& key) const;
  /// What set_integer() has set.
  [[nodiscard]] std::int64_t integer(const std::string& key) const;
  /// What set_real() has set.
  [[nodiscard]] double real(const std::string& key) const;
  /// What set_text() has set.
  [[nodiscard]] std::string text(const std::string& key) const;
  /// All of them.
  const std::map<std::string, Value>& values() const noexcept { return values_; }

 private:
  std::map<std::string, Value> values_;
};

/// Something that is equal on all ranks, such as a schedule. Neither may communicate.
struct CheckpointCallbacks {
  std::function<CheckpointState()> save;                   ///< called by save()
  std::function<void(const CheckpointState& state)> load;  ///< called by maybe_load()
};

/// Something that every rank has its own of, such as sums over its batches.
struct PerRankCallbacks {
  std::function<CheckpointState()> save;  ///< called by save()
  /// `ranks[r]` is what rank r of the saving job gave, on every rank; the job that loads may have
  /// another size and has to share it out anew.
  std::function<void(const std::vector<CheckpointState>& ranks)> load;
};

/// Where and how checkpoints are written; the same on all ranks.
struct CheckpointOptions {
  std::string path = "result";  ///< generations go to path/name; shared by all nodes, or one each
  int keep = 5;                 ///< generations that stay; ChainerMN's cp_interval
  /// save() returns when it has copied the state; a thread writes it while training goes on.
  bool is_async = true;
};

/// Saves and loads what was added to it. Made by create_multi_node_checkpointer() or
/// multi_node_snapshot().
///
/// What is added must live as long as this. Names must be new and contain no '/', or it is an
/// InvalidArgument. Every rank adds the same names in the same order.
class CHAINMAIL_API MultiNodeCheckpointer {
 public:
  struct Impl;
  /// Used by the factories.
  explicit MultiNodeCheckpointer(std::unique_ptr<Impl> impl) noexcept;
  /// Waits for the save under way; logs its error. Removes nothing.
  ~MultiNodeCheckpointer();
  MultiNodeCheckpointer(const MultiNodeCheckpointer&) = delete;
  MultiNodeCheckpointer& operator=(const MultiNodeCheckpointer&) = delete;

  /// A model: parameters, which must be equal on all ranks, and buffers, which may differ.
  void add(const std::string& name, ModuleRef model);
  /// An optimizer: state and hyper-parameters, equal on all ranks.
  void add(const std::string& name, torch::optim::Optimizer& optimizer);
  /// A multi-node optimizer: the same of the wrapped one, and state() with that of its loss scaler.
  /// With double buffering save() applies the mean that is on its way first, as flush() does. A
  /// sharded one is saved and loaded in slices by the ranks that own them, those of torch's own
  /// element-wise optimizers without putting them together.
  /// What an integer wire has kept is saved by all ranks as "NAME wire"; a job of another shape or
  /// on another wire pays it in its first exchanges, and nothing is lost.
  /// Gradients are not saved: save between step() and the next backward.
  void add(const std::string& name, MultiNodeOptimizer& optimizer);
  /// A loss scaler that no MultiNodeOptimizer has.
  void add(const std::string& name, LossScaler& scaler);
  /// A random number generator of each rank: `add("rng", at::detail::getDefaultCPUGenerator())`. In
  /// a larger job the new ranks get seeds derived from the old states.
  void add(const std::string& name, const at::Generator& generator);
  /// A sampler: what state() gives and load_state() takes. Where ranks differ, each keeps its own.
  void add(const std::string& name, MultiNodeSampler& sampler);
  /// An iterator, in the same way.
  void add(const std::string& name, TensorIterator& iterator);
  /// A multi-node iterator: its master's position, in place of the master's own iterator.
  void add(const std::string& name, MultiNodeIterator& iterator);
  /// Of a job of shards, as a sampler.
  void add(const std::string& name, ShardSampler& sampler);
  /// A job of shards: its next step, and the metrics of the epoch so far.
  void add(const std::string& name, ElasticJob& job);
  /// A trigger, as a sampler.
  void add(const std::string& name, IntervalTrigger& trigger);
  /// An aggregator, as a sampler.
  void add(const std::string& name, ObservationAggregator& aggregator);
  /// A trigger, as a sampler.
  void add(const std::string& name, MultiNodeEarlyStoppingTrigger& trigger);
  /// A plain value. Where it differs between ranks, each rank keeps its own.
  void add(const std::string& name, std::int64_t* value);
  /// The same for a real number.
  void add(const std::string& name, double* value);
  /// The same for a text.
  void add(const std::string& name, std::string* value);
  /// Anything else that is equal on all ranks.
  void add(const std::string& name, CheckpointCallbacks callbacks);
  /// Anything else that every rank has its own of.
  void add(const std::string& name, PerRankCallbacks callbacks);

  /// Saves all that was added as of now. Collective.
  /// @throws CheckpointError  on all ranks: this save failed, or with is_async the one before, and
  ///                          then this one has not begun; older checkpoints are untouched. Saving
  ///                          again is fine
  /// @throws InvalidArgument  on all ranks: a callback threw, or iterations differ
  void save(std::int64_t iteration);
  /// Returns when the last save is on disk; throws as save() does. Collective.
  void wait();
  /// Loads the newest checkpoint that is whole, damaged ones left out with a line in the log, and
  /// returns its iteration; nothing when there is none at all. Collective.
  /// @throws CheckpointError  on all ranks: there are only damaged ones; or something that was
  ///                          added is not there, or has another shape
  std::optional<std::int64_t> maybe_load();

 private:
  std::unique_ptr<Impl> impl_;
};

/// Saves what all ranks have in common once. Collective.
/// @param name  of the run, a folder name; dots are fine
/// @throws InvalidArgument  a name that is no folder name, keep < 1
/// @throws CheckpointError  the folder cannot be written to
[[nodiscard]] CHAINMAIL_API std::unique_ptr<MultiNodeCheckpointer> create_multi_node_checkpointer(
    const std::string& name, const std::shared_ptr<Communicator>& communicator,
    const CheckpointOptions& options = {});

/// The same as create_multi_node_checkpointer() for ranks that do not all have the same model:
/// those in one set do, and save it once. `replica_sets` are disjoint; ranks in none of them form
/// one more set. {} is one set of all. All sets resume at the same iteration. Another world size
/// needs as many sets.
/// @throws InvalidArgument  overlapping sets, no such rank
[[nodiscard]] CHAINMAIL_API std::unique_ptr<MultiNodeCheckpointer> multi_node_snapshot(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options = {});

}  // namespace chainmail
