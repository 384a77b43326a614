// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The wrapped optimizer at work on this rank's slices: during a step its groups hold, in place of
// parameters, one-dimensional views of what this rank owns of them, under which the optimizer keeps
// its state. Between steps the groups hold the parameters, for everybody who looks there:
// schedulers, checkpoints, comparisons between ranks, code that adds layers.
//
// One thread per rank. Collective where it says so.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <chainmail/communicator.h>
#include <chainmail/optimizer.h>

#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/sharding/shared_parameters.h"
#include "plugin/train/sharding/state/parameter_state.h"

namespace chainmail::internal {

class OptimizerSlices {
 public:
  /// `is_elementwise`: what the program says of an optimizer whose type is not known here.
  /// `shares_parameters`: the ranks of a node have one copy of them. `is_over_nodes`: all ranks
  /// have slices, not only those of each node.
  OptimizerSlices(torch::optim::Optimizer& optimizer, Communicator& communicator,
                  bool is_elementwise, bool shares_parameters, bool is_over_nodes);

  /// What the optimizer can work on.
  [[nodiscard]] SliceKind kind() const noexcept { return kind_; }
  /// Whether state can be given to other owners: buckets in another order have other slices.
  [[nodiscard]] bool can_move_state() const noexcept { return has_known_state_; }

  /// Before the parameters are set to rank 0's: each rank gets its own copy. Local.
  void unshare_parameters();
  /// After that: one copy per node again, where that is wanted. Collective.
  void share_parameters(const std::vector<NamedTensor>& parameters);

  /// Takes the means that `exchange` has collected as the gradients of this rank's slices, and
  /// cuts what whole state there is.
  /// @throws InvalidArgument  a parameter that the optimizer does not have, whose elements are not
  ///                          in a row, or with a gradient that was set by hand since the exchange
  void begin_step(const GradientExchange& exchange);
  /// The means in this rank's slices.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  /// The same, with what they are of.
  [[nodiscard]] std::vector<GradientShard> shards(const GradientExchange& exchange) const;
  /// The norm of the means of all slices, with the bits of norm_of(). Collective.
  [[nodiscard]] double norm(const GradientExchange& exchange) const;
  /// Steps this rank's slices and gives everybody the parameters. Collective.
  void step(const GradientExchange& exchange, bool use_fused_step);
  /// Instead of step(): nothing changes.
  void drop_gradients();

  /// The state of all parameters on every rank, as the optimizer alone would have it; until the
  /// next begin_step(). Collective.
  void gather_state(const GradientExchange& exchange);
  /// The exchange ends, and with it the slices. After gather_state().
  void forget_slices();

  /// What this rank has of a parameter: elements in the order of memory, with their state.
  struct OwnState {
    at::Tensor parameter;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<ParameterState> state = std::nullopt;  ///< one-dimensional
  };
  /// For checkpoints; of can_move_state(). Without the state. Local.
  [[nodiscard]] std::vector<OwnState> own_parts(const GradientExchange& exchange);
  /// With the state, a copy where it is whole. Local.
  [[nodiscard]] std::vector<OwnState> own_state(const GradientExchange& exchange);
  /// Takes the state of some own_parts(), and cuts what whole state there is. Local.
  void take_state(const GradientExchange& exchange, std::vector<OwnState> states);
  /// Which slices are this rank's: those of other ranks with the same number are equal.
  [[nodiscard]] std::size_t slice() const noexcept { return slice_; }
  /// Whether other ranks have the same slices, and one of them saves them. Local.
  [[nodiscard]] bool is_copy() const;

 private:
  /// This rank's part of one parameter. One without elements is everybody's, whole.
  struct Part {
    at::Tensor parameter;
    at::Tensor view;  ///< the parameter itself where owners have whole ones
    std::size_t bucket = 0;
    std::size_t index = 0;  ///< in the bucket
    std::size_t begin = 0;  ///< in the parameter, in elements
    std::size_t end = 0;
    std::array<at::Tensor, 2> means{};  ///< views of the buckets' memory, of both sets

    /// Where its first element lies.
    const void* address() const;
    bool has_elements() const noexcept { return begin < end; }
  };
  class InGroups;

  /// Before slices are used, or what is in them.
  void prepare(const GradientExchange& exchange);
  void find_parts(const GradientExchange& exchange);
  void check_parameters(const GradientExchange& exchange) const;
  /// Returns the parameters that had another order, with what they had. Throws InvalidArgument for
  /// one that has another shape.
  static std::vector<std::pair<at::Tensor, at::Tensor>> keep_order(
      const GradientExchange& exchange);
  void follow_storage();
  void cut_state(const GradientExchange& exchange);
  void refuse_whole_state(const GradientExchange& exchange) const;
  bool is_all_cut() const;
  bool is_own_mean(const at::Tensor& parameter) const;
  const at::Tensor& mean_of(const GradientBucket& bucket, Part& part) const;
  void gather_known_state(const GradientExchange& exchange);
  void gather_unknown_state();
  void gather_parameters(const GradientExchange& exchange);
  void step_own(const GradientExchange& exchange, bool use_fused_step);
  void step_shared(const GradientExchange& exchange, bool use_fused_step);
  bool can_fuse(const GradientExchange& exchange) const;

  torch::optim::Optimizer* optimizer_;
  Communicator* communicator_;
  bool has_known_state_;
  SliceKind kind_;
  bool is_over_nodes_;
  std::size_t slice_;  ///< this rank's
  bool has_parts_ = false;
  bool is_sliced_ = false;  ///< the state is; what is whole is cut by the next begin_step()
  std::size_t states_ = 0;  ///< how many there were when it was cut last
  std::vector<Part> parts_;
  std::unique_ptr<SharedParameters> shared_;  ///< null: every rank has parameters of its own
};

}  // namespace chainmail::internal
