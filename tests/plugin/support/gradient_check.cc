// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/support/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include <torch/torch.h>

namespace chainmail::testing {

namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

double total_loss(Communicator& communicator, const std::vector<at::Tensor>& inputs,
                  const RankLoss& loss) {
  const torch::NoGradGuard no_grad;
  const at::Tensor sum = loss(inputs).detach().to(torch::kDouble).clone();
  communicator.allreduce(sum);
  return sum.item<double>();
}

double gradient_at(const at::Tensor& input, std::int64_t element) {
  return input.grad().defined() ? input.grad().reshape({-1})[element].item<double>() : 0;
}

}  // namespace

void check_gradients(const std::shared_ptr<Communicator>& communicator,
                     const std::vector<at::Tensor>& inputs, const RankLoss& loss,
                     const RankBackward& backward) {
  backward(loss(inputs));
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& input : inputs) sizes.push_back(input.numel());
  const auto all_sizes = communicator->allgather_obj(sizes);
  for (int rank = 0; rank < communicator->size(); ++rank) {
    const std::vector<std::int64_t>& of_rank = all_sizes[static_cast<std::size_t>(rank)];
    const bool is_own = rank == communicator->rank();
    for (std::size_t i = 0; i < of_rank.size(); ++i) {
      for (std::int64_t element = 0; element < of_rank[i]; ++element) {
        const auto shifted = [&](double by) {
          std::vector<at::Tensor> moved;
          for (const at::Tensor& input : inputs) moved.push_back(input.detach().clone());
          if (is_own) moved[i].view({-1})[element] += by;
          return total_loss(*communicator, moved, loss);
        };
        const double expected = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
        if (!is_own) continue;
        EXPECT_NEAR(gradient_at(inputs[i], element), expected,
                    kTolerance * std::max(1.0, std::abs(expected)))
            << "rank " << rank << " of " << communicator->size() << ", input " << i << ", element "
            << element;
      }
    }
  }
}

at::Tensor waves(at::IntArrayRef sizes, double seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return (torch::arange(count, torch::kDouble) * 0.7 + seed)
      .sin()
      .view(sizes)
      .clone()
      .requires_grad_(true);
}

at::Tensor mix(const std::vector<at::Tensor>& tensors, double seed) {
  at::Tensor sum = torch::zeros({}, torch::kDouble);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor flat =
        (tensor.is_complex() ? torch::view_as_real(tensor) : tensor).reshape({-1});
    const at::Tensor weights = (torch::arange(flat.numel(), torch::kDouble) + seed).cos() + 1.5;
    sum = sum + (flat.to(torch::kDouble).tanh() * weights).sum();
    seed += 3;
  }
  return sum * sum;
}

}  // namespace chainmail::testing
