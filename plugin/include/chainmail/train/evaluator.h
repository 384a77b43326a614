// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Metrics over all ranks, weighted by the number of samples behind them; ChainerMN's
// create_multi_node_evaluator. And metrics that are not averages, such as mean average precision or
// BLEU; its GenericMultiNodeEvaluator.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/communicator.h>
#include <chainmail/train/agreement.h>

namespace chainmail {

/// Sums and counts by name, such as "main/loss". A value.
class CHAINMAIL_API Metrics {
 public:
  /// What is known of one name.
  struct Entry {
    double sum = 0.0;        ///< of the values of all samples
    std::int64_t count = 0;  ///< of samples
  };

  /// Adds the mean over `count` samples, such as those of a batch.
  /// @throws InvalidArgument  a negative count
  void add(const std::string& name, double mean, std::int64_t count = 1);
  /// Adds the sum over `count` samples.
  /// @throws InvalidArgument  a negative count
  void add_sum(const std::string& name, double sum, std::int64_t count);
  /// All names with their sums.
  const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
  /// Sum / count of each; names without a sample are left out.
  [[nodiscard]] std::map<std::string, double> means() const;
  /// Forgets everything.
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
  /// Evaluates this rank's samples.
  using Local = std::function<Metrics()>;

  /// Keeps both. Local.
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

namespace internal {

/// Round by round: the first of every rank in rank order, then the second ones; ranks that have no
/// more are skipped.
template <typename T>
std::vector<T> interleave(std::vector<std::vector<T>> lists) {
  std::size_t rounds = 0;
  for (const std::vector<T>& list : lists) rounds = std::max(rounds, list.size());
  std::vector<T> result;
  for (std::size_t i = 0; i < rounds; ++i) {
    for (std::vector<T>& list : lists) {
      if (i < list.size()) result.push_back(std::move(list[i]));
    }
  }
  return result;
}

}  // namespace internal

/// Every rank computes a Local per batch of its own shard; root makes one Result of all of them.
template <IsObject Local, typename Result>
class GenericMultiNodeEvaluator {
 public:
  /// What this rank has for its next batch; nothing when there are no more. Must not communicate.
  using CalcLocal = std::function<std::optional<Local>()>;
  /// Called on root with the values of all ranks, batch by batch and within one in rank order.
  using Aggregate = std::function<Result(const std::vector<Local>&)>;

  /// Keeps all of them. Local.
  /// @throws InvalidArgument  something is missing, or root is not a rank
  GenericMultiNodeEvaluator(std::shared_ptr<Communicator> communicator, CalcLocal calc_local,
                            Aggregate aggregate, int root = 0)
      : communicator_(std::move(communicator)),
        calc_local_(std::move(calc_local)),
        aggregate_(std::move(aggregate)),
        root_(root) {
    if (!communicator_ || !calc_local_ || !aggregate_) {
      throw InvalidArgument("a generic multi-node evaluator needs a communicator and functions");
    }
    if (root < 0 || root >= communicator_->size()) {
      throw InvalidArgument("GenericMultiNodeEvaluator: root " + std::to_string(root) +
                            " is not a rank of this communicator of " +
                            std::to_string(communicator_->size()));
    }
  }

  /// The result at root, nothing elsewhere. Ranks may have different numbers of batches.
  /// Collective.
  /// @throws InvalidArgument  on all ranks: one of the functions threw; says on which rank
  [[nodiscard]] std::optional<Result> evaluate() {
    std::vector<Local> own = on_all_ranks(*communicator_, [&] {
      std::vector<Local> values;
      while (std::optional<Local> value = calc_local_()) values.push_back(std::move(*value));
      return values;
    });
    std::vector<std::vector<Local>> all = communicator_->gather_obj(own, root_);
    return on_all_ranks(*communicator_, [&] {
      return communicator_->rank() == root_
                 ? std::optional<Result>(aggregate_(internal::interleave(std::move(all))))
                 : std::nullopt;
    });
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  CalcLocal calc_local_;
  Aggregate aggregate_;
  int root_;
};

}  // namespace chainmail
