// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a training loop consists of besides model and wrapped optimizer: its states as named values.

#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/checkpoint.h>
#include <chainmail/data/iterators.h>
#include <chainmail/data/sampler.h>
#include <chainmail/train/loss_scaler.h>
#include <chainmail/train/triggers.h>

#include "base/log.h"
#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/items.h"

namespace chainmail {

using internal::CheckpointItem;

namespace {

// One pair of functions per type of state.

void put(CheckpointState& saved, const SamplerState& state) {
  saved.set_integer("seed", static_cast<std::int64_t>(state.seed));
  saved.set_integer("epoch", state.epoch);
  saved.set_integer("position", state.position);
}

void get(const CheckpointState& saved, SamplerState& state) {
  state.seed = static_cast<std::uint64_t>(saved.integer("seed"));
  state.epoch = saved.integer("epoch");
  state.position = saved.integer("position");
}

void put(CheckpointState& saved, const LossScaler::State& state) {
  saved.set_real("scale", state.scale);
  saved.set_integer("finite steps", state.finite_steps);
}

void get(const CheckpointState& saved, LossScaler::State& state) {
  state.scale = saved.real("scale");
  state.finite_steps = saved.integer("finite steps");
}

void put(CheckpointState& saved, std::int64_t periods) { saved.set_integer("periods", periods); }

void get(const CheckpointState& saved, std::int64_t& periods) {
  periods = saved.integer("periods");
}

void put(CheckpointState& saved, const ObservationAggregatorState& state) {
  saved.set_integer("periods", state.periods);
  saved.set_tensor("history", at::tensor(state.history, at::TensorOptions(at::kDouble)));
}

void get(const CheckpointState& saved, ObservationAggregatorState& state) {
  state.periods = saved.integer("periods");
  const at::Tensor history = saved.tensor("history").to(at::kDouble);
  const auto* const begin = history.const_data_ptr<double>();
  state.history.assign(begin, begin + history.numel());
}

void put(CheckpointState& saved, const EarlyStoppingState& state) {
  saved.set_real("best", state.best);
  saved.set_integer("count", state.count);
  saved.set_integer("checks", state.checks);
  saved.set_real("sum", state.sum);
  saved.set_integer("values", state.values);
}

void get(const CheckpointState& saved, EarlyStoppingState& state) {
  state.best = saved.real("best");
  state.count = saved.integer("count");
  state.checks = saved.integer("checks");
  state.sum = saved.real("sum");
  state.values = saved.integer("values");
}

template <typename Thing>
using StateOf = std::decay_t<decltype(std::declval<const Thing&>().state())>;

template <typename Thing>
CheckpointItem item_of(const std::string& name, Thing& thing) {
  return {.name = name,
          .scope = internal::ItemScope::kCompared,
          .save =
              [&thing] {
                CheckpointState saved;
                put(saved, thing.state());
                return saved;
              },
          .load =
              [&thing](const std::vector<CheckpointState>& ranks, int rank) {
                StateOf<Thing> state{};
                get(internal::own_state(ranks, rank), state);
                thing.load_state(state);
              }};
}

// The same where load_state() is a collective.
template <typename Thing>
CheckpointItem collective_item_of(const std::string& name, Thing& thing) {
  CheckpointItem item = item_of(name, thing);
  const auto read = std::make_shared<StateOf<Thing>>();
  item.load = [read](const std::vector<CheckpointState>& ranks, int rank) {
    get(internal::own_state(ranks, rank), *read);
  };
  item.finish = [&thing, read] { thing.load_state(*read); };
  return item;
}

// Beside the parts of the wrapped optimizer. Checkpoints of older versions have neither key.
constexpr const char* kScale = "loss scaler/scale";
constexpr const char* kFiniteSteps = "loss scaler/finite steps";
constexpr const char* kBucketOrder = "bucket order";

void put(CheckpointState& saved, const MultiNodeOptimizerState& state) {
  if (state.loss_scaler) {
    saved.set_real(kScale, state.loss_scaler->scale);
    saved.set_integer(kFiniteSteps, state.loss_scaler->finite_steps);
  }
  if (!state.bucket_order.empty()) {
    saved.set_tensor(kBucketOrder, at::tensor(state.bucket_order, at::TensorOptions(at::kLong)));
  }
}

void get(const CheckpointState& saved, MultiNodeOptimizerState& state) {
  if (saved.has(kScale)) {
    state.loss_scaler = {saved.real(kScale), saved.integer(kFiniteSteps)};
  }
  if (saved.has(kBucketOrder)) {
    const at::Tensor order = saved.tensor(kBucketOrder).to(at::kLong);
    const auto* const begin = order.const_data_ptr<std::int64_t>();
    state.bucket_order.assign(begin, begin + order.numel());
  }
}

}  // namespace

CheckpointItem internal::multi_node_optimizer_item(const std::string& name,
                                                   MultiNodeOptimizer& optimizer) {
  CheckpointItem item = optimizer_item(name, optimizer.actual_optimizer());
  const auto read = std::make_shared<MultiNodeOptimizerState>();
  item.save = [&optimizer, save_parts = std::move(item.save)] {
    CheckpointState saved = save_parts();
    put(saved, optimizer.state());
    return saved;
  };
  item.load = [&optimizer, read, name, load_parts = std::move(item.load)](
                  const std::vector<CheckpointState>& ranks, int rank) {
    load_parts(ranks, rank);
    *read = {};
    get(own_state(ranks, rank), *read);
    if (const auto scaler = optimizer.state().loss_scaler;
        scaler && !read->loss_scaler && rank == 0) {
      LogMessage(LogLevel::kWarning)
          << "the checkpoint's '" << name << "' has no state of a loss scaler; the scale stays "
          << scaler->scale << " unless another part of the checkpoint sets it";
    }
  };
  item.prepare = [&optimizer] { optimizer.flush(); };
  item.finish = [&optimizer, read] { optimizer.load_state(*read); };
  return item;
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
