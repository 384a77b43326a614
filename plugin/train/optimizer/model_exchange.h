// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model whose parameters are the same on all ranks, and the exchange of its gradients: what
// MultiNodeOptimizer and DistributedModel have in common.
//
// One thread per rank. Collective but where it says local.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <chainmail/communicator.h>
#include <chainmail/optimizer.h>

#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/wire/auto_wire.h"

namespace chainmail::internal {

/// Throws InvalidArgument for sizes and bounds that are negative, and for options that do not go
/// together.
void check_options(const MultiNodeOptimizerOptions& options);

class ModelExchange {
 public:
  /// `optimizer` may be null, as may options.model, but not both. Compares and broadcasts nothing
  /// before adopt_all().
  ModelExchange(std::shared_ptr<Communicator> communicator, MultiNodeOptimizerOptions options,
                torch::optim::Optimizer* optimizer);
  ~ModelExchange();
  ModelExchange(const ModelExchange&) = delete;
  ModelExchange& operator=(const ModelExchange&) = delete;

  /// Gives every rank the parameters and buffers of rank 0, and creates a new exchange. Calls
  /// `before` first, once nothing can be refused any more.
  void adopt_all(const std::function<void()>& before = {});
  /// After the model has changed: the same for what is new. First it calls `use_last` when a mean
  /// was on its way, which is that of the old parameters; this rank's own gradients stay. True when
  /// it has called.
  bool follow_model(const std::function<void()>& use_last);
  /// Called on all ranks.
  struct SliceListener {
    /// Of parameters that are equal on all ranks: throws what refuses them.
    std::function<void(const std::vector<NamedTensor>&)> check;
    std::function<void()> before_change;     ///< of the buckets, and with them the slices
    std::function<void()> before_broadcast;  ///< of rank 0's parameters
    std::function<void(const std::vector<NamedTensor>&)> after_broadcast;  ///< with trainable ones
  };
  /// From now on gradients are left in slices of `kind`. `keeps_order`: the buckets do not follow
  /// the order in which backward finishes gradients. Local, before adopt_all().
  void use_slices(SliceKind kind, bool keeps_order, SliceListener listener);
  /// The next exchange averages gradients over the ranks of `communicator`, which are some of ours;
  /// all of ours when it is null. Parameters are compared in it, and in `other`, too: what ranks
  /// wait in that see no change. Local.
  void average_over(std::shared_ptr<Communicator> communicator,
                    std::shared_ptr<Communicator> other = nullptr);
  /// From now on any rank may owe what a wire has rounded away elsewhere. On all ranks.
  void expect_debts();
  /// Between two steps: the same exchange anew.
  void renew_exchange();
  /// Of an elastic job, whose communicator has just entered another world: a new exchange, which
  /// counts from 0 as that of a newcomer does. Compares and broadcasts nothing.
  void enter_world();
  /// With slices: throws InvalidArgument, naming it, for a parameter whose state is in slices of
  /// another shape, or whose mean on its way is of another type. Local.
  void check_adopted() const;
  /// Local: after a step, or a forward that begins one.
  void count_step() noexcept;
  /// After the first backward: buckets in the order in which it really finished gradients.
  void take_observed_order();
  /// Local: that order; empty before, and where none is learned.
  const std::vector<std::size_t>& learned_order() const noexcept { return order_; }
  /// As if `order` had been learned now; nothing when it is none of these parameters, or none is
  /// learned.
  void use_order(std::vector<std::size_t> order);
  /// With the wire "auto", after a step: as what gradients should travel from now on, after what
  /// steps have taken; nothing when that stays. Collective where a choice is due, which all ranks
  /// know.
  [[nodiscard]] std::optional<ops::WireFormat> choose_wire();
  /// Local: what has been chosen last, or gradients travel as they are; nothing with other wires.
  [[nodiscard]] std::optional<ops::WireFormat> chosen_wire() const noexcept {
    return auto_ ? std::optional(auto_->wire()) : std::nullopt;
  }
  /// With the wire "auto", between two steps, without a mean on its way. Where it is another one
  /// than now the next choice is a thousand steps away.
  void use_wire(ops::WireFormat wire);
  /// Local: in a job of shards throws InvalidArgument that names `call`, unless its step is being
  /// committed. With `or_between`, also when no step is under way.
  void check_turn(const char* call, bool or_between = false) const;
  /// Local: a gradient of this rank is one of so many equal parts of what all ranks average, now or
  /// as what nodes have changed.
  double parts_of_mean() const;
  /// Local: false while NoSync objects live.
  bool is_enabled() const noexcept { return syncs_off_ == 0; }
  /// Local: adds NoSync objects, or takes them away.
  void add_syncs_off(int change) noexcept;

  Communicator& communicator() noexcept { return *communicator_; }
  const MultiNodeOptimizerOptions& options() const noexcept { return options_; }
  GradientExchange& gradients() noexcept { return *exchange_; }
  const GradientExchange& gradients() const noexcept { return *exchange_; }
  std::uint64_t steps() const noexcept { return steps_; }

 private:
  bool is_current();
  bool has_new_tie();
  /// What the ranks have now, once they have found that it is the same.
  struct Found {
    std::vector<NamedTensor> parameters;
    std::vector<NamedTensor> trainable;
    std::vector<NamedTensor> buffers;
  };
  Found examine();
  std::optional<std::string> taken_by_another(const std::vector<NamedTensor>& trainable) const;
  Communicator& averaged_over() const noexcept;
  /// The one that options() names; nothing with other wires.
  std::optional<ops::WireFormat> integer_wire() const;
  bool overlaps() const;
  bool learns_order() const;
  void compare_among_some(Communicator& some, const std::vector<std::string>& lines);
  void check_no_means() const;
  void adopt(Found found);
  void make_exchange(std::vector<NamedTensor> trainable, std::vector<std::size_t> order);

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Communicator> averaged_over_;  ///< null: communicator_
  double parts_ = 1;                             ///< parts_of_mean() of exchange_
  bool expects_debts_ = false;
  std::shared_ptr<Communicator> compared_over_;  ///< besides; null: nothing
  MultiNodeOptimizerOptions options_;
  std::optional<AutoWire> auto_;  ///< none with another wire
  torch::optim::Optimizer* optimizer_;
  std::shared_ptr<const GradientTaker> taker_;  ///< this
  std::vector<std::uintptr_t> signature_;       ///< of what the exchange was made for
  std::vector<std::string> described_;          ///< what all ranks had when they compared it last
  std::vector<NamedTensor> trainable_;          ///< what the exchange is of
  std::vector<NamedTensor> untied_;             ///< what must have no memory in common
  std::vector<const void*> addresses_;          ///< of these, when they had none
  std::vector<NamedTensor> known_;              ///< parameters and buffers that have been broadcast
  /// What a parameter was when it was broadcast last.
  struct Adopted {
    NamedTensor named;
    bool is_trained = false;
    std::vector<std::int64_t> sizes;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    c10::Device device = c10::kCPU;
  };
  std::vector<Adopted> adopted_;
  SliceKind slices_ = SliceKind::kNone;
  bool keeps_order_ = false;
  SliceListener listener_;
  int syncs_off_ = 0;  ///< NoSync objects
  bool knows_order_ = false;
  std::vector<std::size_t> order_;
  std::uint64_t steps_ = 0;
  std::unique_ptr<GradientExchange> exchange_;  // last: it calls the rest
};

}  // namespace chainmail::internal
