// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Local steps of all nodes in one process, written down plainly: what the ranks of a job must come
// to. Gradients are those of sharded_training.h.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <chainmail/optimizer.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {

/// Gradients are about 1e-6 (rank 0) to 1e-4.
inline std::unique_ptr<torch::optim::Optimizer> make_sgd(Tensors parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), 200);
}

inline torch::Tensor flat_of(const Tensors& parameters) {
  const torch::NoGradGuard no_grad;
  Tensors rows;
  for (const torch::Tensor& parameter : parameters) rows.push_back(parameter.detach().flatten());
  return torch::cat(rows);
}

class Simulation {
 public:
  Simulation(std::vector<int> ranks_of_nodes, const std::vector<std::int64_t>& sizes,
             const MakeOptimizer& make, LocalSteps local, c10::ScalarType dtype)
      : ranks_of_nodes_(std::move(ranks_of_nodes)), local_(local) {
    for (std::size_t node = 0; node < ranks_of_nodes_.size(); ++node) {
      parameters_.push_back(make_parameters(sizes, dtype));
      optimizers_.push_back(make(parameters_.back()));
    }
    common_ = flat_of(parameters_[0]);
    velocity_ = torch::zeros_like(common_);
  }

  void step(std::int64_t number) {
    average_gradients(number);
    for (const auto& optimizer : optimizers_) optimizer->step();
    if (++steps_ <= local_.start) {
      if (steps_ == local_.start) common_ = flat_of(parameters_[0]);
      return;
    }
    const std::int64_t step = steps_ - local_.start;
    const std::int64_t distance = local_.steps / local_.fragments;
    if (sent_ && step == sent_after_ + local_.delay) arrive();
    if (step % distance != 0) return;
    sent_ = step / distance % local_.fragments;
    sent_after_ = step;
    values_.clear();
    for (const Tensors& of_node : parameters_) values_.push_back(part(flat_of(of_node), *sent_));
    if (local_.delay == 0) arrive();
  }

  const Tensors& parameters(int node) const {
    return parameters_.at(static_cast<std::size_t>(node));
  }

 private:
  torch::Tensor part(const torch::Tensor& flat, std::int64_t fragment) const {
    const std::int64_t begin = flat.numel() * fragment / local_.fragments;
    const std::int64_t end = flat.numel() * (fragment + 1) / local_.fragments;
    return flat.slice(0, begin, end);
  }

  void average_gradients(std::int64_t number) {
    std::vector<Tensors> sums;
    int rank = 0;
    for (std::size_t node = 0; node < parameters_.size(); ++node) {
      Tensors& sum = sums.emplace_back();
      for (int i = 0; i < ranks_of_nodes_[node]; ++i, ++rank) {
        for (std::size_t p = 0; p < parameters_[node].size(); ++p) {
          const torch::Tensor gradient = gradient_of(parameters_[node][p], number, rank);
          if (i == 0) {
            sum.push_back(gradient);
          } else {
            sum[p] = sum[p] + gradient;
          }
        }
      }
    }
    const bool is_local = steps_ >= local_.start;
    for (std::size_t node = 0; node < parameters_.size(); ++node) {
      for (std::size_t p = 0; p < parameters_[node].size(); ++p) {
        torch::Tensor mean = sums[node][p] / ranks_of_nodes_[node];
        if (!is_local) {
          mean = torch::zeros_like(mean);
          for (const Tensors& sum : sums) mean += sum[p];
          mean /= rank;
        }
        parameters_[node][p].mutable_grad() = mean;
      }
    }
  }

  void arrive() {
    const torch::NoGradGuard no_grad;
    const std::int64_t fragment = *std::exchange(sent_, std::nullopt);
    torch::Tensor common = part(common_, fragment);
    torch::Tensor velocity = part(velocity_, fragment);
    torch::Tensor mean = torch::zeros_like(common);
    for (const torch::Tensor& value : values_)
      mean += (common - value) / static_cast<double>(values_.size());
    velocity.mul_(local_.outer_momentum).add_(mean);
    common.sub_(local_.outer_lr * (mean + local_.outer_momentum * velocity));
    for (std::size_t node = 0; node < parameters_.size(); ++node) {
      torch::Tensor flat = flat_of(parameters_[node]);
      torch::Tensor own = part(flat, fragment);
      own.copy_(local_.merge ? own * *local_.merge + common * (1 - *local_.merge)
                             : common + (own - values_[node]));
      std::int64_t begin = 0;
      for (torch::Tensor& parameter : parameters_[node]) {
        parameter.copy_(flat.slice(0, begin, begin + parameter.numel()).view(parameter.sizes()));
        begin += parameter.numel();
      }
    }
  }

  std::vector<int> ranks_of_nodes_;
  LocalSteps local_;
  std::vector<Tensors> parameters_;  // of each node
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  torch::Tensor common_, velocity_;
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> sent_;  // the fragment that is on its way
  std::int64_t sent_after_ = 0;
  Tensors values_;  // of each node, when it was sent
};

}  // namespace chainmail::testing
