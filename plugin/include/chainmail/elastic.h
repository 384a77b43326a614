// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Training whose result has the same bits on any number of ranks: a step's global batch is divided
// into shards, and gradients are summed along a tree that depends on their number alone, whoever
// computes which of them. After EasyScale's logical workers (Li et al., SC 2023) and ReproRed.
//
// One thread per rank. Collective but where it says local: every rank makes its job, and calls the
// members of its steps, in the same order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/checkpoint.h>
#include <chainmail/communicator.h>
#include <chainmail/data/shard_sampler.h>
#include <chainmail/optimizer.h>
#include <chainmail/train/evaluator.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

namespace internal {
class JobLoop;
class ShardedStep;
}  // namespace internal

/// The same on all ranks, and wherever the same bits are wanted.
struct ElasticJobOptions {
  /// Into how many parts a step's batch is divided; at least as many as there will be ranks, best a
  /// multiple. 0: what CHAINMAIL_SHARDS says (`launcher --shards`), else the number of ranks.
  std::uint32_t shards = 0;
  std::uint64_t seed = 0;  ///< of each shard's random numbers: dropout, augmentation
  /// Threads that torch computes with, since its sums depend on them. 0: as many as OMP_NUM_THREADS
  /// or torch says.
  int threads = 1;
  std::string communicator = "auto";              ///< as for create_communicator()
  CommunicatorOptions communicator_options = {};  ///< as for create_communicator()
};

/// Who takes part, from one change to the next; a job of fixed size has one world.
struct Membership {
  std::uint32_t generation = 1;  ///< counts worlds from 1
  int rank = 0;                  ///< of this process in it
  int size = 1;                  ///< ranks
  std::int64_t next_step = 1;    ///< its first one
};

/// How far a job has come; the same on all ranks.
struct ElasticJobState {
  std::int64_t next_step = 1;  ///< Step::number() of the one that comes
  Metrics metrics;             ///< of the epoch so far
  std::uint32_t shards = 0;    ///< of each step
  std::uint64_t seed = 0;      ///< of the job
};

/// A part of a step's batch, with at least one sample. While it is in hand, torch's default
/// generator of random numbers on the CPU is the shard's, and the model's buffers are those of the
/// last commit. Valid until the loop goes on. Local, but for the last backward() of a step.
class CHAINMAIL_API Shard {
 public:
  /// 0 to shards - 1.
  std::uint32_t number() const noexcept { return number_; }
  /// Of its samples in the dataset.
  const std::vector<std::size_t>& indices() const noexcept { return indices_; }
  /// Once for each shard: `loss` is a scalar, the mean over the shard's samples.
  /// @throws InvalidArgument  a second time
  void backward(const at::Tensor& loss);
  /// A mean over `count` samples, such as "main/loss"; counts when the step is committed.
  /// @throws InvalidArgument  a negative count
  void report(const std::string& name, double mean, std::int64_t count);

 private:
  friend class internal::ShardedStep;
  Shard(internal::ShardedStep& step, std::uint32_t number, std::vector<std::size_t> indices)
      : step_(&step), number_(number), indices_(std::move(indices)) {}

  internal::ShardedStep* step_;
  std::uint32_t number_;
  std::vector<std::size_t> indices_;
};

/// This rank's shards of a step, in order, to be gone through once with a range-based for.
class CHAINMAIL_API Shards {
 public:
  /// What the loop goes on with.
  class CHAINMAIL_API Iterator {
   public:
    /// The shard in hand.
    Shard& operator*() const;
    /// Ends the shard in hand; the next one takes its place.
    Iterator& operator++();
    /// Whether there is a shard in hand.
    bool operator!=(std::nullptr_t) const noexcept;

   private:
    friend class Shards;
    explicit Iterator(internal::ShardedStep* step) : step_(step) {}
    internal::ShardedStep* step_;
  };
  /// Begins with the first shard that has samples.
  Iterator begin();
  /// Where it ends.
  std::nullptr_t end() const noexcept { return nullptr; }

 private:
  friend class Step;
  explicit Shards(internal::ShardedStep& step) : step_(&step) {}
  internal::ShardedStep* step_;
};

/// One step of an ElasticJob, between two commits.
class CHAINMAIL_API Step {
 public:
  /// Counts from 1 over the whole job, also across checkpoints. Local, as are the next three.
  std::int64_t number() const noexcept;
  /// Whole epochs of the sampler that came before this step.
  std::int64_t epoch() const;
  /// After commit(): whether that was the epoch's last step.
  bool ends_epoch() const;
  /// This rank's shards; one sampler per step. The end of the loop is collective.
  /// @throws InvalidArgument  a second time; a job without an optimizer, or with several
  Shards shards(ShardSampler& samples);
  /// Sums the gradients of all shards, steps the optimizer, and moves the sampler on. Nothing of
  /// the step counts before.
  /// @throws InvalidArgument  not all of this rank's shards have had their backward(); an optimizer
  ///                          on another communicator
  /// @throws MismatchError    ranks are at different steps, or have other samplers
  StepResult commit(MultiNodeOptimizer& optimizer);
  /// The means of what all shards have reported in this epoch's committed steps, in the order of
  /// shards: the same bits on any number of ranks. Local.
  std::map<std::string, double> metrics() const;

 private:
  friend class internal::ShardedStep;
  explicit Step(internal::ShardedStep& step) : step_(&step) {}
  internal::ShardedStep* step_;
};

/// A training job in steps of shards. Made by create_elastic_job().
class CHAINMAIL_API ElasticJob {
 public:
  /// Used by the factory.
  explicit ElasticJob(const ElasticJobOptions& options);
  /// Waits for a checkpoint under way. Not within run(). Local.
  ~ElasticJob();
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;

  /// Of all ranks. Local, as are the next two.
  const std::shared_ptr<Communicator>& communicator() const noexcept;
  /// Into how many parts a step is divided.
  std::uint32_t shards() const noexcept;
  /// Whether ranks may come and go: under `launcher --elastic`. Until run() the communicator is of
  /// this process alone then.
  bool is_elastic() const noexcept;
  /// The state of the program, which ranks that join later are given: everything that a checkpoint
  /// would hold. What is added must outlive the job. A module's buffers (the statistics of a
  /// BatchNorm) become those of all shards: their changes are averaged over the samples.
  /// @throws InvalidArgument  a name that is there already; a buffer that is complex or not on the
  ///                          CPU; within run()
  void add(const std::string& name, ModuleRef model);
  /// An optimizer of this job's communicator, with its loss scaler.
  void add(const std::string& name, MultiNodeOptimizer& optimizer);
  /// Where a sampler is.
  void add(const std::string& name, ShardSampler& sampler);
  /// Anything else that is equal on all ranks.
  void add(const std::string& name, CheckpointCallbacks callbacks);
  /// Saves what was added in path/name, after every `interval` steps and after the last one, and
  /// goes on from the newest checkpoint there: before the first step, and when all ranks have died.
  /// The files are those of a MultiNodeCheckpointer to which the same was added, on any number of
  /// ranks. Under `launcher --elastic` the state is saved as well when the job has to end: fewer
  /// ranks than the least for too long, deaths in one step again and again, or no launcher any
  /// more.
  /// @throws InvalidArgument  an interval below 1, a name that is no folder name; a second time;
  ///                          within run()
  void checkpoint(const std::string& name, const CheckpointOptions& options, std::int64_t interval);
  /// Called before the first step, and again each time that other ranks take part: the communicator
  /// is one of the new world then. Collective, so it may communicate.
  void on_world(std::function<void(const Membership& world)> callback);
  /// Calls `step` for step after step until it returns false, which it does on all ranks in the
  /// same step. Every call commits, or throws, or returns false before it has asked for shards.
  /// Where the state says at its beginning that nothing is left, a job that had ended makes no step
  /// more when it is started again. After what was thrown, run() begins with the step that did not
  /// commit. Under `launcher --elastic` a step that could not commit because ranks were lost is
  /// called again, by those that are left; and a rank that is no longer needed ends here, with exit
  /// code 0.
  /// @throws InvalidArgument  `step` has returned without a commit
  /// @throws MismatchError    it has returned false on some ranks, and others go on
  /// @throws CheckpointError  a checkpoint could not be read or written
  void run(const std::function<bool(Step& step)>& step);
  /// Of the steps that were committed. Local, as is the next.
  ElasticJobState state() const;
  /// Goes on from there, on any number of ranks. Between calls of run().
  void load_state(const ElasticJobState& state);
  /// Evaluates samples 0 to `samples` - 1, a shard of them at a time: `shard` is called with their
  /// indices and must not communicate. The metrics of all, added in the order of shards: the same
  /// bits on any number of ranks. Between steps, or in one after its commit.
  /// @throws InvalidArgument  on all ranks: what `shard` threw on one
  [[nodiscard]] Metrics evaluate(
      std::size_t samples,
      const std::function<Metrics(const std::vector<std::size_t>& indices)>& shard);

 private:
  std::unique_ptr<internal::JobLoop> loop_;
};

/// Joins the job, as create_communicator() does, and pins what results depend on. Before the model
/// is made. Collective.
/// @throws InvalidArgument  fewer shards than ranks, or more than 65536; CHAINMAIL_SHARDS is no
///                          number; a negative number of threads; a communicator of torch's
/// @throws MismatchError    ranks have other options
[[nodiscard]] CHAINMAIL_API std::unique_ptr<ElasticJob> create_elastic_job(
    const ElasticJobOptions& options = {});

}  // namespace chainmail
