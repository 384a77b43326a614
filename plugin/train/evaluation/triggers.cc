// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/triggers.h>

#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/train/agreement.h>

#include "base/log.h"

namespace chainmail {

namespace {

std::int64_t value_of(const TrainingPoint& point, IntervalUnit unit) {
  return unit == IntervalUnit::kEpoch ? point.epoch : point.iteration;
}

double mean_of_all(const std::vector<std::vector<double>>& lists) {
  double sum = 0;
  std::size_t count = 0;
  for (const std::vector<double>& list : lists) {
    for (const double value : list) sum += value;
    count += list.size();
  }
  return sum / static_cast<double>(count);
}

}  // namespace

IntervalTrigger::IntervalTrigger(Interval interval) : interval_(interval) {
  if (interval.period < 1) {
    throw InvalidArgument("a trigger with a period of " + std::to_string(interval.period));
  }
}

bool IntervalTrigger::fires(const TrainingPoint& point) {
  const std::int64_t periods = value_of(point, interval_.unit) / interval_.period;
  return periods > std::exchange(periods_, periods);
}

ObservationAggregator::ObservationAggregator(std::shared_ptr<Communicator> communicator,
                                             std::string original_key,
                                             ObservationAggregatorOptions options)
    : communicator_(std::move(communicator)),
      key_(std::move(original_key)),
      options_(std::move(options)),
      trigger_(options_.comm_trigger) {
  internal::require_communicator(communicator_, "ObservationAggregator");
  if (options_.aggregated_key.empty()) options_.aggregated_key = key_ + "_aggregated";
  if (!options_.aggregator) options_.aggregator = mean_of_all;
}

void ObservationAggregator::update(const TrainingPoint& point, Observation& observation) {
  if (const auto found = observation.find(key_); found != observation.end()) {
    history_.push_back(found->second);
  }
  if (!trigger_.fires(point)) return;
  const std::vector<std::vector<double>> all = communicator_->gather_obj(history_);
  history_.clear();
  std::optional<double> value = on_all_ranks(*communicator_, [&] {
    bool is_observed = false;
    for (const std::vector<double>& list : all) is_observed = is_observed || !list.empty();
    return is_observed ? std::optional(options_.aggregator(all)) : std::nullopt;
  });
  value = communicator_->bcast_obj(value);
  if (value) observation[options_.aggregated_key] = *value;
}

ObservationAggregatorState ObservationAggregator::state() const {
  return {.periods = trigger_.state(), .history = history_};
}

void ObservationAggregator::load_state(const ObservationAggregatorState& state) {
  trigger_.load_state(state.periods);
  history_ = state.history;
}

MultiNodeEarlyStoppingTrigger::MultiNodeEarlyStoppingTrigger(
    std::shared_ptr<Communicator> communicator, EarlyStoppingOptions options)
    : communicator_(std::move(communicator)),
      options_(std::move(options)),
      is_max_(options_.mode == StoppingMode::kMax ||
              (options_.mode == StoppingMode::kAuto &&
               options_.monitor.find("accuracy") != std::string::npos)),
      check_(options_.check_trigger) {
  internal::require_communicator(communicator_, "MultiNodeEarlyStoppingTrigger");
  if (options_.patience < 1) {
    throw InvalidArgument("early stopping with a patience of " + std::to_string(options_.patience));
  }
  state_.best = (is_max_ ? -1 : 1) * std::numeric_limits<double>::infinity();
}

bool MultiNodeEarlyStoppingTrigger::has_progress(double value) const {
  return is_max_ ? value > state_.best : value < state_.best;
}

bool MultiNodeEarlyStoppingTrigger::fires(const TrainingPoint& point, Observation& observation) {
  if (const auto found = observation.find(options_.monitor); found != observation.end()) {
    state_.sum += found->second;
    ++state_.values;
  }
  const Interval& end = options_.max_trigger;
  const bool is_over = value_of(point, end.unit) >= end.period;
  if (!check_.fires(point)) return is_over;
  // The sum is the same bits on all ranks, and so is what follows from it.
  const at::Tensor total =
      at::tensor({state_.sum, static_cast<double>(state_.values)}, at::TensorOptions(at::kDouble));
  state_.sum = 0;
  state_.values = 0;
  communicator_->allreduce(total);
  const double values = total[1].item<double>();
  if (values == 0) {
    internal::LogMessage(internal::LogLevel::kWarning)
        << "early stopping: no rank has observed '" << options_.monitor << "' before iteration "
        << point.iteration;
    return is_over;
  }
  const double value = total[0].item<double>() / values;
  observation[options_.monitor + options_.suffix] = value;
  const bool is_better = has_progress(value);
  state_.count = is_better ? 0 : state_.count + 1;
  state_.best = is_better ? value : state_.best;
  if (communicator_->rank() == 0) {
    internal::LogMessage(internal::LogLevel::kInfo)
        << "early stopping: " << options_.monitor << " is " << value << ", the best " << state_.best
        << ", " << state_.count << " checks without progress";
  }
  return is_over || state_.count >= options_.patience;
}

EarlyStoppingState MultiNodeEarlyStoppingTrigger::state() const {
  EarlyStoppingState state = state_;
  state.checks = check_.state();
  return state;
}

void MultiNodeEarlyStoppingTrigger::load_state(const EarlyStoppingState& state) {
  state_ = state;
  check_.load_state(state.checks);
}

}  // namespace chainmail
