// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a training loop consists of besides model and wrapped optimizer: its states as named values.

#include <memory>
#include <utility>

#include <chainmail/checkpoint.h>
#include <chainmail/data/iterators.h>
#include <chainmail/data/sampler.h>
#include <chainmail/train/loss_scaler.h>
#include <chainmail/train/triggers.h>

#include "base/log.h"
#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/items.h"
#include "plugin/checkpoint/items/optimizer/local_optimizer.h"
#include "plugin/checkpoint/items/optimizer/sliced_optimizer.h"
#include "plugin/checkpoint/items/state_item.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/local_steps/local_access.h"

namespace chainmail {

using internal::CheckpointItem;
using internal::SavedStates;
using internal::visit_members;

namespace {

// Each calls visit(key, member) for the members of one type of state.

void visit_members(auto&& visit, LossScaler::State& state) {
  visit("scale", state.scale);
  visit("finite steps", state.finite_steps);
}

void visit_members(auto&& visit, std::int64_t& periods) { visit("periods", periods); }

void visit_members(auto&& visit, ObservationAggregatorState& state) {
  visit("periods", state.periods);
  visit("history", state.history);
}

void visit_members(auto&& visit, EarlyStoppingState& state) {
  visit("best", state.best);
  visit("count", state.count);
  visit("checks", state.checks);
  visit("sum", state.sum);
  visit("values", state.values);
}

template <typename State>
void read(const CheckpointState& saved, State& state) {
  visit_members([&](const char* key, auto& member) { internal::get(saved, key, member); }, state);
}

template <typename Thing>
using StateOf = std::decay_t<decltype(std::declval<const Thing&>().state())>;

template <typename Thing>
CheckpointItem item_of(const std::string& name, Thing& thing) {
  return internal::state_item<StateOf<Thing>>(
      name, thing, [](auto&& visit, auto& state) { visit_members(visit, state); });
}

// The same where load_state() is a collective.
template <typename Thing>
CheckpointItem collective_item_of(const std::string& name, Thing& thing) {
  CheckpointItem item = item_of(name, thing);
  const auto state = std::make_shared<StateOf<Thing>>();
  item.load = [state](const SavedStates& saved) { read(saved.own(), *state); };
  item.finish = [&thing, state] { thing.load_state(*state); };
  return item;
}

// Beside the parts of the wrapped optimizer. Checkpoints of older versions have neither key.
constexpr const char* kScale = "loss scaler/scale";
constexpr const char* kFiniteSteps = "loss scaler/finite steps";
constexpr const char* kBucketOrder = "bucket order";
constexpr const char* kWire = "wire";

void put_extras(CheckpointState& saved, const MultiNodeOptimizerState& state) {
  if (state.loss_scaler) {
    saved.set_real(kScale, state.loss_scaler->scale);
    saved.set_integer(kFiniteSteps, state.loss_scaler->finite_steps);
  }
  if (!state.bucket_order.empty()) internal::put(saved, kBucketOrder, state.bucket_order);
  if (state.wire) saved.set_text(kWire, *state.wire);
}

void get_extras(const CheckpointState& saved, MultiNodeOptimizerState& state) {
  if (saved.has(kScale)) {
    state.loss_scaler = {saved.real(kScale), saved.integer(kFiniteSteps)};
  }
  if (saved.has(kBucketOrder)) internal::get(saved, kBucketOrder, state.bucket_order);
  if (saved.has(kWire)) state.wire = saved.text(kWire);
}

}  // namespace

CheckpointItem internal::multi_node_optimizer_item(const std::string& name,
                                                   MultiNodeOptimizer& optimizer) {
  const bool is_in_parts = saves_slices(optimizer);
  CheckpointItem item = is_in_parts ? sliced_optimizer_item(name, optimizer)
                                    : optimizer_item(name, optimizer.actual_optimizer());
  const auto read = std::make_shared<MultiNodeOptimizerState>();
  item.save = [&optimizer, save_parts = std::move(item.save)] {
    CheckpointState saved = save_parts();
    put_extras(saved, optimizer.state());
    return saved;
  };
  item.load = [&optimizer, read, name,
               load_parts = std::move(item.load)](const SavedStates& saved) {
    load_parts(saved);
    *read = {};
    get_extras(saved.own(), *read);
    if (const auto scaler = optimizer.state().loss_scaler;
        scaler && !read->loss_scaler && saved.rank == 0) {
      LogMessage(LogLevel::kWarning)
          << "the checkpoint's '" << name << "' has no state of a loss scaler; the scale stays "
          << scaler->scale << " unless another part of the checkpoint sets it";
    }
  };
  item.prepare = [&optimizer, is_in_parts] {
    optimizer.flush();
    if (!is_in_parts) optimizer.gather_state();
  };
  item.finish = [&optimizer, read] { optimizer.load_state(*read); };
  item.job_ranks = LocalAccess::model(optimizer).communicator().impl().world_ranks;
  item.refusal_of_many =
      "was saved by each node, by a job with local steps: go on from it with .local_steps, or use "
      "another name for the run";
  if (LocalAccess::stepping(optimizer) == nullptr) return item;
  return local_optimizer_item(std::move(item), optimizer);
}

void MultiNodeCheckpointer::add(const std::string& name, LossScaler& scaler) {
  impl_->add(item_of(name, scaler));
}

void MultiNodeCheckpointer::add(const std::string& name, MultiNodeSampler& sampler) {
  impl_->add(item_of(name, sampler));
}

void MultiNodeCheckpointer::add(const std::string& name, TensorIterator& iterator) {
  impl_->add(item_of(name, iterator));
}

void MultiNodeCheckpointer::add(const std::string& name, MultiNodeIterator& iterator) {
  impl_->add(collective_item_of(name, iterator));
}

void MultiNodeCheckpointer::add(const std::string& name, IntervalTrigger& trigger) {
  impl_->add(item_of(name, trigger));
}

void MultiNodeCheckpointer::add(const std::string& name, ObservationAggregator& aggregator) {
  impl_->add(item_of(name, aggregator));
}

void MultiNodeCheckpointer::add(const std::string& name, MultiNodeEarlyStoppingTrigger& trigger) {
  impl_->add(item_of(name, trigger));
}

}  // namespace chainmail
