// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/evaluator.h>

#include <utility>
#include <vector>

#include <chainmail/train/agreement.h>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

namespace {

std::string names_of(const std::map<std::string, Metrics::Entry>& entries) {
  std::string text;
  for (const auto& item : entries) text += (text.empty() ? "" : ", ") + item.first;
  return text;
}

}  // namespace

void Metrics::add(const std::string& name, double mean, std::int64_t count) {
  add_sum(name, count == 0 ? 0.0 : mean * static_cast<double>(count), count);
}

void Metrics::add_sum(const std::string& name, double sum, std::int64_t count) {
  if (count < 0) {
    throw InvalidArgument("metric '" + name + "' over " + std::to_string(count) + " samples");
  }
  Entry& entry = entries_[name];
  entry.sum += sum;
  entry.count += count;
}

std::map<std::string, double> Metrics::means() const {
  std::map<std::string, double> result;
  for (const auto& [name, entry] : entries_) {
    if (entry.count > 0) result[name] = entry.sum / static_cast<double>(entry.count);
  }
  return result;
}

Metrics aggregate_metrics(const Metrics& metrics, Communicator& communicator) {
  const auto all = communicator.allgather_obj(metrics.entries());
  std::map<std::string, Metrics::Entry> total;
  std::string names;
  std::size_t first_rank = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::map<std::string, Metrics::Entry>& entries = all[r];
    if (entries.empty()) {
      continue;  // nothing to evaluate there
    }
    if (names.empty()) {
      names = names_of(entries);
      first_rank = r;
    } else if (names_of(entries) != names) {
      internal::fail_on_all_ranks(communicator, "ranks report different metrics: rank " +
                                                    std::to_string(first_rank) + " has " + names +
                                                    "; rank " + std::to_string(r) + " has " +
                                                    names_of(entries));
    }
    for (const auto& [name, entry] : entries) {
      total[name].sum += entry.sum;
      total[name].count += entry.count;
    }
  }
  Metrics result;
  for (const auto& [name, entry] : total) {
    result.add(name, entry.count == 0 ? 0.0 : entry.sum / static_cast<double>(entry.count),
               entry.count);
  }
  return result;
}

MultiNodeEvaluator::MultiNodeEvaluator(Local evaluate, std::shared_ptr<Communicator> communicator)
    : evaluate_(std::move(evaluate)), communicator_(std::move(communicator)) {
  if (!evaluate_ || !communicator_) {
    throw InvalidArgument("a multi-node evaluator needs a function and a communicator");
  }
}

std::map<std::string, double> MultiNodeEvaluator::evaluate() {
  const Metrics local = on_all_ranks(*communicator_, evaluate_);
  return aggregate_metrics(local, *communicator_).means();
}

MultiNodeEvaluator create_multi_node_evaluator(MultiNodeEvaluator::Local evaluate,
                                               const std::shared_ptr<Communicator>& communicator) {
  return MultiNodeEvaluator(std::move(evaluate), communicator);
}

}  // namespace chainmail
