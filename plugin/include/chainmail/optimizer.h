// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The optimizer that averages gradients over ranks before each step; ChainerMN's
// create_multi_node_optimizer.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include <chainmail/communicator.h>
#include <chainmail/train/local_steps.h>
#include <chainmail/train/loss_scaler.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

/// What ranks share of an optimizer, after ZeRO (Rajbhandari et al., SC 2020).
enum class Sharding : std::uint8_t {
  kNone,  ///< nothing: every rank has all state and steps all parameters
  /// The ranks of a node share state and step, each node has all of it: the state of P ranks takes
  /// 1/P of the memory on each. Between nodes travels what travels with kNone, and parameters have
  /// the bits that kNone gives them. CPUs only; not for "naive" and "gloo", nor in a job of shards.
  kNode,
  /// All ranks share state and step: 1/(all ranks) of the state on each. Between nodes travel
  /// gradients to their owners and parameters, in their own type, to all: on a 16-bit wire more
  /// than with kNode. Bits are those of kNone but on a 16-bit wire between more than two nodes,
  /// where means are rounded once, not twice. Else as kNode.
  kAll,
};

/// How gradients are averaged and applied; the same on all ranks.
struct MultiNodeOptimizerOptions {
  /// A TORCH_MODULE holder, any module or a torch::jit::Module, or a pointer or shared pointer to
  /// one. Its parameters and buffers are broadcast at construction and its gradients averaged, with
  /// those of parameters that only the optimizer knows. Null: the optimizer's own parameters, and
  /// no buffers: nobody can tell from parameters which buffers go with them.
  ModuleRef model = nullptr;
  /// A trainable parameter without a gradient on some ranks counts as zero there. False: that is a
  /// MismatchError on all ranks, naming parameter and ranks. In both cases a parameter without a
  /// gradient on every rank stays without one, as in a single process.
  bool zero_fill = true;
  /// Gradients travel in buckets while backward still computes others (Li et al., VLDB 2020).
  /// Unset: when there are several nodes. On one node the exchange would take the cores that
  /// backward runs on.
  std::optional<bool> overlap = std::nullopt;
  /// Of a bucket, when they overlap; 0: one exchange per dtype after backward, as in ChainerMN.
  /// Unset: a sixteenth of the gradients, from 1 to 4 MiB: the last bucket's way is not hidden.
  std::optional<std::int64_t> bucket_bytes = std::nullopt;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< of the one that is ready first
  /// step() applies the mean of the step before, whose exchange had all of this step to travel in:
  /// ChainerMN's double buffering, staleness one. The first step() changes nothing, flush()
  /// applies the last mean. Twice the memory for gradients; not for "naive".
  bool double_buffering = false;
  /// Gradients are scaled down to this global 2-norm after they were averaged; 0: not.
  double max_grad_norm = 0;
  /// torch::optim::SGD, Adam and AdamW step by ATen's fused kernels, on their own state, where the
  /// parameters allow it: several times faster, and equal but for rounding.
  bool use_fused_step = true;
  /// step() changes nothing when a mean is infinite or not a number, which all ranks see alike.
  bool skip_nonfinite = false;
  /// For models that compute in float16: the scale of losses, which step() takes out of the means
  /// again. Implies skip_nonfinite. Its state becomes that of rank 0.
  std::shared_ptr<LossScaler> loss_scaler = nullptr;
  /// But for kNone the means are in slices: after a backward that exchanges, no parameter has a
  /// gradient. All but the last backward of a step belong into no_sync(), every trainable parameter
  /// belongs to a group of the optimizer, and allreduce_grad() and zero_grad(false) are refused.
  Sharding shard = Sharding::kNone;
  /// With slices, of an optimizer that is not one of torch's own SGD, Adam, AdamW, RMSprop and
  /// Adagrad: each element changes by its own gradient and state alone, so that ranks may own parts
  /// of parameters. Such an optimizer cannot be saved and its parameters must stay the same ones.
  /// False: ranks own whole parameters, near equal numbers of elements.
  bool is_elementwise = false;
  /// With kNode: the ranks of a node have one copy of the trainable parameters, in memory that all
  /// of them map. A step's changes are seen by all after step(), by nobody before. What a program
  /// writes into a parameter by itself is seen by the whole node at once: let one rank of each node
  /// write, or all ranks the same values. Parameters get memory of their own again when the
  /// optimizer ends, and other memory when it begins: views of them that were made before keep the
  /// old one.
  bool share_parameters = false;
  /// With kNode and kAll: ZeRO stage 2. What a rank does not own of a gradient is freed as soon as
  /// the mean of its bucket is known, and memory for three buckets serves all. Gradients travel
  /// while backward computes others, on one node too, and buckets keep the order of the parameters,
  /// last to first. Not with double_buffering. Within no_sync() gradients are whole.
  bool free_gradients = false;
  /// What gradients of float32 travel as between nodes: "native", "float16", "bfloat16", "int8",
  /// "int4", or "auto": as they are, until it is seen after some steps what these wait for, then
  /// "float16" or "int8" where that makes steps shorter, for all ranks alike; looked at again every
  /// thousand steps. Unset: as the communicator's allreduce_grad_dtype says. What the integer wires
  /// round away of a gradient is added to later ones, so that no more than one or two roundings are
  /// ever missing; parameters of one dimension, or of fewer than 1024 elements, travel as they are.
  /// Those wires and "auto" are for CPUs, not for "naive", kAll, a job of shards, or where ranks
  /// own whole parameters. What they have kept is in checkpoints.
  std::optional<std::string> wire = std::nullopt;
  /// Gradients are averaged inside each node only, and what nodes have changed every few steps. All
  /// that looks at means (clipping, skip_nonfinite, loss_scaler, StepResult) does so by node. The
  /// wrapped optimizer's state is a node's own; parameters are, too, but for flush(), which
  /// evaluation and checkpoints need. Buffers become their mean over all ranks with fragment 0.
  /// CPUs only; not with shard, double_buffering and in a job of shards, nor for "gloo".
  std::optional<LocalSteps> local_steps = std::nullopt;
};

/// What a rank has of the mean of a parameter's gradient in a sharded optimizer.
struct GradientShard {
  std::string name;        ///< the parameter's
  at::Tensor parameter;    ///< all of it
  std::int64_t begin = 0;  ///< the first element of the mean, in the order of memory
  std::int64_t end = 0;    ///< behind the last one
  /// One-dimensional. Of the parameter's shape where the optimizer gets whole parameters.
  at::Tensor gradient;
};

namespace internal {
class LocalStepping;
class ModelExchange;
class OptimizerSlices;
class ShardedStep;
struct LocalAccess;
struct SliceAccess;
}  // namespace internal

/// While one lives, backward leaves this rank's own gradients, which add up as usual.
class CHAINMAIL_API NoSync {
 public:
  /// Made by no_sync().
  explicit NoSync(internal::ModelExchange& model) noexcept;
  /// From the next backward on gradients are exchanged again, unless another one lives. Local.
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  internal::ModelExchange* model_;
};

/// What one step() did; the same on all ranks, with local steps on those of a node.
struct StepResult {
  /// False in the first step with double buffering, and for gradients that were not finite.
  bool is_applied = false;
  /// The global 2-norm of the averaged gradients before clipping; NaN unless max_grad_norm,
  /// skip_nonfinite or a loss scaler asks for it.
  double grad_norm = 0;
  /// On the wires int8 and int4: the norm of what was rounded away of the gradients by that of what
  /// was rounded, over all ranks. Every sixteenth exchange is measured, from the first on, and
  /// known two steps later, with double buffering three; until then, on other wires, and for what
  /// local steps exchange, 0. What it says was lost is not: it is added to later gradients.
  double wire_error = 0;
  /// Of the gradients as they travel between nodes, each element once: with two nodes each sends as
  /// many, with N of them 2 (N - 1) / N as many. 0 on one node, for "naive" and torch's own
  /// communicators, and with local steps, where none travel.
  std::int64_t wire_bytes = 0;
};

/// What step() depends on besides parameters, gradients and the wrapped optimizer; the same on all
/// ranks. Plain values, for checkpoints.
struct MultiNodeOptimizerState {
  std::optional<LossScaler::State> loss_scaler;  ///< of the one that it was given
  /// Which parameters the buckets hold, in which order, once that was learned from a backward. It
  /// decides in which order long sums of many nodes are added up.
  std::vector<std::int64_t> bucket_order;
  /// With the wire "auto": the one that it has chosen.
  std::optional<std::string> wire = std::nullopt;
};

/// Wraps any torch optimizer but LBFGS, whose closure step() does not take and which decides by
/// this rank's own loss: step an LBFGS by itself, with a DistributedModel and a closure that
/// returns the loss averaged over the ranks. One thread per rank; every rank calls the same
/// members, and backward() on the model, in the same order.
///
/// backward() leaves means: it exchanges the gradients of all trainable parameters and returns when
/// they are the averages over the ranks (with double buffering those of the backward before, or
/// none). Several backwards before one step() are right, but exchange each time: put all but the
/// last into no_sync(). A backward that only some ranks run needs no_sync(), too. What it throws is
/// what step() would.
///
/// The gradients are views of buckets that the next exchange writes again: clone() one that is to
/// outlive its step. Sparse gradients become dense; a graph made by create_graph is not kept.
class CHAINMAIL_API MultiNodeOptimizer {
 public:
  /// Does what create_multi_node_optimizer says.
  MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                     std::shared_ptr<Communicator> communicator, MultiNodeOptimizerOptions options);
  /// The next backward leaves this rank's own gradients. Drops a mean that double buffering has on
  /// its way: flush() before. Local.
  ~MultiNodeOptimizer();
  MultiNodeOptimizer(const MultiNodeOptimizer&) = delete;
  MultiNodeOptimizer& operator=(const MultiNodeOptimizer&) = delete;

  /// Local: drops the gradients of model and optimizer, or sets them to zero.
  /// @throws InvalidArgument  a sharded one: not to none
  void zero_grad(bool set_to_none = true);
  /// Steps the wrapped optimizer with the mean of the gradients; exchanges them first where no
  /// backward did. No gradient is dropped, the first one included. Parameters that were added or
  /// unfrozen since the last call are compared and broadcast first.
  /// @throws MismatchError  gradients differ between ranks and zero_fill is false; or ranks are not
  ///                        at the same exchange
  StepResult step();
  /// Makes the gradients their means, without a step, unless a backward did: for gradients that
  /// were set by hand. Neither clips nor looks at their values.
  /// @throws InvalidArgument  in a sharded optimizer
  void allreduce_grad();
  /// Double buffering: applies the mean that is still on its way, at the end of training or before
  /// a checkpoint or evaluation; false when there is none. Gradients are dropped. Collective.
  /// Local steps: completes all fragments, so that all ranks have the same parameters. What nodes
  /// have changed since a fragment was sent counts as it is, without the outer optimizer.
  bool flush();
  /// See NoSync. Ends with the returned object.
  [[nodiscard]] NoSync no_sync();
  /// Gives every rank the parameters, buffers and optimizer state of rank 0 again: after loading a
  /// file on rank 0, or after adding a layer and before its first forward. Collective.
  void synchronize();
  /// Sharded: puts the state of the wrapped optimizer together on every rank, as kNone
  /// would have it, until the next step(): to save or to look at it. Takes the memory of kNone
  /// meanwhile. Nothing with kNone. Collective.
  /// @throws InvalidArgument  an optimizer with is_elementwise that has made a step
  void gather_state();
  /// Sharded: the means that this rank steps with, between a backward that exchanges and
  /// step(); empty at any other time. They may be changed in place, on all nodes alike. Valid until
  /// the next step() or backward. Local.
  /// @throws InvalidArgument  without sharding
  [[nodiscard]] std::vector<GradientShard> gradient_shards();
  /// The wrapped optimizer, for schedulers and its options. Do not step it. Sharded, its
  /// groups hold parameters and its state() that of this rank's slices: see gather_state().
  torch::optim::Optimizer& actual_optimizer() noexcept;
  /// What load_state() takes. Local.
  [[nodiscard]] MultiNodeOptimizerState state() const;
  /// The same on all ranks. What does not fit (no loss scaler here or there, another model, buckets
  /// that do not overlap with backward) is left as it is. Gradients are dropped. Collective.
  /// @throws InvalidArgument  a scale that is not positive
  void load_state(const MultiNodeOptimizerState& state);
  /// Bytes of the buckets that hold this rank's gradients.
  std::size_t gradient_bytes() const noexcept;

 private:
  friend class internal::ShardedStep;
  friend struct internal::LocalAccess;
  friend struct internal::SliceAccess;
  bool is_on(const Communicator& communicator) const noexcept;
  internal::OptimizerSlices* slices() const noexcept;
  internal::LocalStepping* local_stepping() const noexcept;
  internal::ModelExchange& exchange() const noexcept;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Broadcasts parameters, buffers and optimizer state (hyper-parameters too) of rank 0, bit for
/// bit, and returns the averaging optimizer. Collective.
/// @throws InvalidArgument  an LBFGS; a trainable parameter that cannot be averaged (complex); what
///                          the options cannot have, such as share_parameters of ranks that cannot
///                          map each other's memory, or sharding of parameters that have memory in
///                          common without being the same tensor
/// @throws MismatchError  ranks have different options, parameters (names, shapes, dtypes) or
///                        optimizers; names the first difference
[[nodiscard]] CHAINMAIL_API std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options = {});

}  // namespace chainmail
