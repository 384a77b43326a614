// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Metrics over all ranks, weighted by the number of samples behind them; ChainerMN's
// create_multi_node_evaluator.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <chainmail/communicator.h>

namespace chainmail {

/// Sums and counts by name, such as "main/loss". A value.
class CHAINMAIL_API Metrics {
 public:
  struct Entry {
    double sum = 0.0;
    std::int64_t count = 0;
  };

  /// Adds the mean over `count` samples (of a batch, say). Throws InvalidArgument when count < 0.
  void add(const std::string& name, double mean, std::int64_t count = 1);
  const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
  /// Sum / count of each; names without a sample are left out.
  [[nodiscard]] std::map<std::string, double> means() const;
  void clear() noexcept { entries_.clear(); }

 private:
  std::map<std::string, Entry> entries_;
};

/// The metrics of all ranks together, the same on every rank. A rank without any metric (an empty
/// shard) is fine. Collective.
/// @throws MismatchError  on all ranks: some rank has other names; says which
[[nodiscard]] CHAINMAIL_API Metrics aggregate_metrics(const Metrics& metrics,
                                                      Communicator& communicator);

/// Evaluates the local shard on every rank and returns the means over all samples.
class CHAINMAIL_API MultiNodeEvaluator {
 public:
  using Local = std::function<Metrics()>;

  MultiNodeEvaluator(Local evaluate, std::shared_ptr<Communicator> communicator);
  /// Collective. When evaluation throws on some rank, all ranks throw InvalidArgument naming it.
  [[nodiscard]] std::map<std::string, double> evaluate();

 private:
  Local evaluate_;
  std::shared_ptr<Communicator> communicator_;
};

/// `evaluate` goes through this rank's samples; scatter them with force_equal_length = false, or
/// use without_duplicates(), so that no sample counts twice. It must not communicate.
[[nodiscard]] CHAINMAIL_API MultiNodeEvaluator create_multi_node_evaluator(
    MultiNodeEvaluator::Local evaluate, const std::shared_ptr<Communicator>& communicator);

}  // namespace chainmail
