// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"

namespace chainmail::bench {
namespace {

using Clock = std::chrono::steady_clock;

c10d::ReduceOp parse_redop(const std::string& name) {
  const std::map<std::string, c10d::ReduceOp::RedOpType> ops = {{"sum", c10d::ReduceOp::SUM},
                                                                {"avg", c10d::ReduceOp::AVG},
                                                                {"min", c10d::ReduceOp::MIN},
                                                                {"max", c10d::ReduceOp::MAX}};
  if (const auto found = ops.find(name); found != ops.end()) return found->second;
  throw InvalidArgument("unknown reduction \"" + name + "\"; valid are: sum, avg, min, max");
}

void all_reduce(const Candidate& candidate, std::vector<at::Tensor>& tensors,
                const c10d::ReduceOp& op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = false;  // as torch.distributed.all_reduce passes it
  const auto work = candidate.group->allreduce(tensors, options);
  if (work) work->wait();
}

void barrier(const Candidate& candidate) {
  const auto work = candidate.group->barrier();
  if (work) work->wait();
}

// 1, 2, 3, 1, ... times `factor`: exact in every dtype for a few dozen ranks.
at::Tensor pattern(const Case& what, double factor) {
  const auto steps = at::arange(static_cast<std::int64_t>(what.count())).remainder(3).add(1);
  return steps.to(at::kDouble).mul(factor).to(parse_dtype(what.dtype));
}

double expected_factor(const Case& what, int size) {
  const double sum = 0.5 * size * (size + 1);
  if (what.redop == "sum") return sum;
  if (what.redop == "avg") return sum / size;
  return what.redop == "min" ? 1.0 : size;
}

// Wrong elements over all ranks.
std::int64_t count_wrong(const Case& what, const Candidate& candidate, const Ranks& ranks) {
  std::vector<at::Tensor> tensors = {pattern(what, ranks.rank + 1)};
  all_reduce(candidate, tensors, parse_redop(what.redop));
  const at::Tensor expected = pattern(what, expected_factor(what, ranks.size));
  std::vector<at::Tensor> wrong = {tensors[0].ne(expected).sum().to(at::kLong).reshape({1})};
  all_reduce(candidate, wrong, c10d::ReduceOp::SUM);
  return wrong[0].item<std::int64_t>();
}

// Times of one round, each the maximum over the ranks, ascending.
std::vector<double> time_round(const Case& what, const Candidate& candidate,
                               const Candidate& collector, std::vector<at::Tensor>& tensors) {
  const c10d::ReduceOp op = parse_redop(what.redop);
  std::vector<at::Tensor> times = {at::empty({what.iterations}, at::kDouble)};
  double* us = times[0].mutable_data_ptr<double>();
  barrier(collector);
  for (int i = 0; i < what.warmup; ++i) all_reduce(candidate, tensors, op);
  for (int i = 0; i < what.iterations; ++i) {
    const auto start = Clock::now();
    all_reduce(candidate, tensors, op);
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
  // Zeros stay what they are however often they are summed.
  std::vector<at::Tensor> tensors = {
      at::zeros({static_cast<std::int64_t>(what.count())}, parse_dtype(what.dtype))};
  Collector ours_times;
  Collector base_times;
  for (int round = 0; round < what.rounds; ++round) {
    ours_times.add_round(time_round(what, ours, ours, tensors));
    if (base != nullptr) base_times.add_round(time_round(what, *base, ours, tensors));
  }
  check();
  outcome.ours = ours_times.finish();
  outcome.base = base_times.finish();
  return outcome;
}

}  // namespace chainmail::bench
