// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "tools/bench/exercise.h"

namespace chainmail::bench {
namespace {

using Clock = std::chrono::steady_clock;

void all_reduce(const Candidate& candidate, at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = false;
  candidate.group->allreduce(tensors, options)->wait();
}

// Wrong elements over all ranks.
std::int64_t count_wrong(const Case& what, const Candidate& candidate, const Ranks& ranks) {
  const Exercise exercise = make_exercise(what, ranks);
  exercise.run(*candidate.group);
  at::Tensor wrong = at::full({1}, exercise.count_wrong(), at::kLong);
  all_reduce(candidate, wrong, c10d::ReduceOp::SUM);
  return wrong.item<std::int64_t>();
}

// Times of one round, each the maximum over the ranks, ascending.
std::vector<double> time_round(const Case& what, const Candidate& candidate,
                               const Candidate& collector, const Exercise& exercise) {
  at::Tensor times = at::empty({what.iterations}, at::kDouble);
  double* us = times.mutable_data_ptr<double>();
  collector.group->barrier()->wait();
  for (int i = 0; i < what.warmup; ++i) exercise.run(*candidate.group);
  for (int i = 0; i < what.iterations; ++i) {
    const auto start = Clock::now();
    exercise.run(*candidate.group);
    us[i] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  all_reduce(collector, times, c10d::ReduceOp::MAX);
  std::vector<double> sorted(us, us + what.iterations);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

class Collector {
 public:
  void add_round(const std::vector<double>& sorted) {
    timing_.rounds.push_back(quantile(sorted, 0.5));
    all_.insert(all_.end(), sorted.begin(), sorted.end());
  }
  Timing finish() {
    if (all_.empty()) return timing_;
    std::sort(all_.begin(), all_.end());
    std::vector<double> medians = timing_.rounds;
    std::sort(medians.begin(), medians.end());
    timing_.min = all_.front();
    timing_.median = quantile(medians, 0.5);
    timing_.p90 = quantile(all_, 0.9);
    return timing_;
  }

 private:
  Timing timing_;
  std::vector<double> all_;
};

}  // namespace

at::ScalarType parse_dtype(const std::string& name) {
  const std::map<std::string, at::ScalarType> dtypes = {
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int8", at::kChar},      {"uint8", at::kByte},
      {"int32", at::kInt},         {"int64", at::kLong}};
  if (const auto found = dtypes.find(name); found != dtypes.end()) return found->second;
  std::string valid;
  for (const auto& [known, type] : dtypes) valid += (valid.empty() ? "" : ", ") + known;
  throw InvalidArgument("unknown dtype \"" + name + "\"; valid are: " + valid);
}

std::size_t Case::count() const {
  return std::max<std::size_t>(bytes / c10::elementSize(parse_dtype(dtype)), 1);
}

Outcome measure(const Case& what, const Candidate& ours, const Candidate* base,
                const Ranks& ranks) {
  Outcome outcome;
  const auto check = [&] {
    if (!what.check) return;
    outcome.wrong += count_wrong(what, ours, ranks);
    if (base != nullptr) outcome.base_wrong += count_wrong(what, *base, ranks);
  };
  check();
  const Exercise exercise = make_exercise(what, ranks);
  // Zeros stay what they are however often they are summed.
  for (const at::Tensor& input : exercise.inputs) input.zero_();
  Collector ours_times;
  Collector base_times;
  for (int round = 0; round < what.rounds; ++round) {
    ours_times.add_round(time_round(what, ours, ours, exercise));
    if (base != nullptr) base_times.add_round(time_round(what, *base, ours, exercise));
  }
  check();
  outcome.ours = ours_times.finish();
  outcome.base = base_times.finish();
  return outcome;
}

}  // namespace chainmail::bench
