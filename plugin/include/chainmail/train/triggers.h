// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// When something is due in a training loop, and the values of all ranks that such decisions need:
// Chainer's IntervalTrigger, ChainerMN's ObservationAggregator and MultiNodeEarlyStoppingTrigger.
//
// One thread per rank. What takes a communicator is collective: every rank calls it in each
// iteration, with the same point.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

namespace chainmail {

/// How far training is.
struct TrainingPoint {
  std::int64_t epoch = 0;      ///< whole ones done
  std::int64_t iteration = 0;  ///< done, counted from the start of training
};

/// What an Interval counts.
enum class IntervalUnit : std::uint8_t {
  kEpoch,      ///< whole epochs
  kIteration,  ///< steps of the optimizer
};

/// A number of epochs or iterations.
struct Interval {
  std::int64_t period = 1;                   ///< at least 1
  IntervalUnit unit = IntervalUnit::kEpoch;  ///< of the period
};

/// Fires whenever another `period` of epochs or iterations is over; once when several are. Local.
class CHAINMAIL_API IntervalTrigger {
 public:
  /// @throws InvalidArgument  a period below 1
  explicit IntervalTrigger(Interval interval);
  /// Whether another period is over since the last call.
  [[nodiscard]] bool fires(const TrainingPoint& point);
  /// Periods that were over at the last call; for snapshots.
  std::int64_t state() const noexcept { return periods_; }
  /// Goes on from what state() gave.
  void load_state(std::int64_t periods) noexcept { periods_ = periods; }

 private:
  Interval interval_;
  std::int64_t periods_ = 0;
};

/// The values of one iteration by name, such as "main/loss".
using Observation = std::map<std::string, double>;

/// What an ObservationAggregator computes, and when.
struct ObservationAggregatorOptions {
  std::string aggregated_key = "";  ///< empty: the original key with "_aggregated"
  Interval comm_trigger = {1, IntervalUnit::kIteration};  ///< when ranks exchange values
  /// Of the values of each rank since the last time, in rank order; called on rank 0. Unset: the
  /// mean of all values.
  std::function<double(const std::vector<std::vector<double>>&)> aggregator = nullptr;
};

/// Everything that an aggregator remembers; plain values, for snapshots. The history is each
/// rank's own.
struct ObservationAggregatorState {
  std::int64_t periods = 0;     ///< of comm_trigger
  std::vector<double> history;  ///< what this rank has observed since the last time
};

/// Puts a value over all ranks into every rank's observation, whenever the trigger fires and some
/// rank has observed the key since the last time.
class CHAINMAIL_API ObservationAggregator {
 public:
  /// Aggregates the values under `original_key`. Local.
  ObservationAggregator(std::shared_ptr<Communicator> communicator, std::string original_key,
                        ObservationAggregatorOptions options = {});
  /// Remembers this rank's value, and adds the aggregate when it is due. Collective.
  /// @throws InvalidArgument  on all ranks: what the aggregator threw
  void update(const TrainingPoint& point, Observation& observation);
  /// What load_state() takes. Local.
  [[nodiscard]] ObservationAggregatorState state() const;
  /// Goes on from what state() gave. Local.
  void load_state(const ObservationAggregatorState& state);

 private:
  std::shared_ptr<Communicator> communicator_;
  std::string key_;
  ObservationAggregatorOptions options_;
  IntervalTrigger trigger_;
  std::vector<double> history_;
};

/// Which values of the monitored key are better.
enum class StoppingMode : std::uint8_t {
  kAuto,  ///< kMax for a key with "accuracy", else kMin
  kMin,   ///< smaller ones, as of a loss
  kMax,   ///< larger ones, as of an accuracy
};

/// When training stops early.
struct EarlyStoppingOptions {
  Interval check_trigger = {1, IntervalUnit::kEpoch};  ///< when progress is checked
  std::string monitor = "main/loss";                   ///< the value that is to get better
  std::int64_t patience = 3;                           ///< checks without progress
  StoppingMode mode = StoppingMode::kAuto;             ///< what better means
  Interval max_trigger = {100, IntervalUnit::kEpoch};  ///< the end in any case
  std::string suffix = "_aggregated";                  ///< of the mean's key
};

/// Everything that a trigger remembers; plain values, for snapshots. sum and values differ between
/// ranks unless taken right after a check.
struct EarlyStoppingState {
  double best = 0;          ///< mean so far
  std::int64_t count = 0;   ///< checks without progress
  std::int64_t checks = 0;  ///< periods of check_trigger
  double sum = 0;           ///< of what this rank has observed since the last check
  std::int64_t values = 0;  ///< in `sum`
};

/// Fires, on all ranks in the same iteration, when the mean over all ranks and values has not
/// become better in `patience` checks, at each further check without progress, and from max_trigger
/// on. NaN is no progress. CHAINMAIL_LOG=info shows each check.
class CHAINMAIL_API MultiNodeEarlyStoppingTrigger {
 public:
  /// Local.
  /// @throws InvalidArgument  a period below 1
  explicit MultiNodeEarlyStoppingTrigger(std::shared_ptr<Communicator> communicator,
                                         EarlyStoppingOptions options = {});
  /// Whether training should end. Adds monitor + suffix to the observation at a check. Collective.
  [[nodiscard]] bool fires(const TrainingPoint& point, Observation& observation);
  /// What load_state() takes. Local.
  [[nodiscard]] EarlyStoppingState state() const;
  /// Goes on from what state() gave. Local.
  void load_state(const EarlyStoppingState& state);

 private:
  bool has_progress(double value) const;

  std::shared_ptr<Communicator> communicator_;
  EarlyStoppingOptions options_;
  bool is_max_;
  IntervalTrigger check_;
  EarlyStoppingState state_;
};

}  // namespace chainmail
