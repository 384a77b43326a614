// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Values and gradients of the differentiable collectives.

#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

using testing::comm;

double sum_of_ranks() { return comm()->size() * (comm()->size() - 1) / 2.0; }

TEST(Allreduce, SumsAndSumsGradients) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
    const auto x = torch::full({3, 2}, comm()->rank() + 1, torch::dtype(dtype).requires_grad(true));
    const auto y = functions::allreduce(comm(), x.t());  // not contiguous
    EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(y.eq(sum_of_ranks() + comm()->size()).all().item<bool>());
    // Rank r weighs its result by r + 1, so everybody's gradient is the sum of the weights.
    (y * (comm()->rank() + 1)).sum().backward();
    EXPECT_TRUE(x.grad().eq(sum_of_ranks() + comm()->size()).all().item<bool>());
  }
}

TEST(Allreduce, TakesWhatHasNoGradient) {
  const auto counts = functions::allreduce(comm(), torch::full({2}, comm()->rank(), torch::kLong));
  EXPECT_TRUE(counts.eq(sum_of_ranks()).all().item<bool>());
  EXPECT_FALSE(counts.requires_grad());
  EXPECT_EQ(functions::allreduce(comm(), torch::ones({})).item<float>(), comm()->size());
  EXPECT_EQ(functions::allreduce(comm(), torch::ones({0, 3})).numel(), 0);
}

TEST(Allreduce, DoesNotChangeItsArgument) {
  const auto x = torch::ones({4});
  (void)functions::allreduce(comm(), x);
  EXPECT_TRUE(x.eq(1).all().item<bool>());
}

TEST(Allreduce, CanBeDifferentiatedTwice) {
  const auto x = torch::full({2}, comm()->rank() + 1, torch::dtype(torch::kDouble));
  x.requires_grad_(true);
  // L = sum over ranks of S^3, S the sum of all x: dL/dx = 3 P S^2, and its derivative 6 P P S.
  const auto s = functions::allreduce(comm(), x);
  const auto first =
      torch::autograd::grad({s.pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  const double ranks = comm()->size();
  const double sum = sum_of_ranks() + ranks;
  EXPECT_NEAR(first[0].item<double>(), 3 * ranks * sum * sum, 1e-9);
  const auto second = torch::autograd::grad({first.sum()}, {x})[0];
  EXPECT_NEAR(second[0].item<double>(), 6 * ranks * ranks * sum, 1e-9);
}

TEST(Allgather, BringsTensorsOfAnyShape) {
  const std::int64_t own = comm()->rank();
  const auto parts = functions::allgather(comm(), torch::full({own, 3}, own, torch::kInt));
  ASSERT_EQ(parts.size(), static_cast<std::size_t>(comm()->size()));
  for (std::int64_t r = 0; r < comm()->size(); ++r) {
    const auto& part = parts[static_cast<std::size_t>(r)];
    EXPECT_EQ(part.sizes(), at::IntArrayRef({r, 3}));
    EXPECT_EQ(part.scalar_type(), torch::kInt);
    EXPECT_TRUE(part.eq(r).all().item<bool>());
  }
  const auto mixed = functions::allgather(
      comm(), comm()->rank() % 2 == 0 ? torch::ones({}) : torch::ones({4, 1, 2}));
  EXPECT_EQ(mixed.front().dim(), 0);
  EXPECT_EQ(mixed.back().dim(), comm()->size() % 2 == 1 ? 0 : 3);
}

TEST(Allgather, GradientsComeBackFromEveryUse) {
  const int own = comm()->rank();
  for (const auto dtype : {torch::kHalf, torch::kFloat, torch::kDouble}) {
    const auto x = torch::ones({own + 1, 2}, torch::dtype(dtype).requires_grad(true));
    const auto parts = functions::allgather(comm(), x);
    auto loss = torch::zeros({}, dtype);
    for (int r = 0; r < comm()->size(); ++r) {  // rank `own` weighs what it has of r
      loss = loss + parts[static_cast<std::size_t>(r)].sum() * (own + 1) * (r + 2);
    }
    loss.backward();
    const double expected = (sum_of_ranks() + comm()->size()) * (own + 2);
    EXPECT_TRUE(x.grad().eq(expected).all().item<bool>()) << x.grad();
  }
}

TEST(Allgather, WhatIsNotUsedCountsAsZero) {
  const auto x = torch::ones({comm()->rank() + 1}, torch::requires_grad());
  const auto parts = functions::allgather(comm(), x);
  parts[0].sum().backward();  // ChainerMN raises unless every output is used
  EXPECT_TRUE(x.grad().eq(comm()->rank() == 0 ? comm()->size() : 0).all().item<bool>());
}

// Gradient buckets start while backward is in collectives of its own, at other moments on every
// rank.
TEST(Functions, GoTogetherWithOverlappedGradients) {
  const auto make = [] {
    torch::manual_seed(3);
    return torch::nn::Sequential(torch::nn::Linear(6, 50), torch::nn::Tanh(),
                                 torch::nn::Linear(50, 50), torch::nn::Tanh(),
                                 torch::nn::Linear(50, 1));
  };
  const auto loss_of = [](torch::nn::Sequential& model, const torch::Tensor& x,
                          const std::function<torch::Tensor(const torch::Tensor&)>& sum) {
    torch::Tensor h = x;
    for (auto& layer : *model) {
      h = layer.forward<torch::Tensor>(h);
      h = h - sum(h.sum(0)) * 0.01;
    }
    return h.pow(2).sum();
  };
  torch::manual_seed(4);
  const std::int64_t batch = 5;
  const auto samples = torch::randn({batch * comm()->size(), 6});

  torch::nn::Sequential together = make();
  auto optimizer = create_multi_node_optimizer(
      std::make_unique<torch::optim::SGD>(together->parameters(), 1e-3), comm(),
      {.model = &together, .overlap = true, .bucket_bytes = 1000, .first_bucket_bytes = 100});
  torch::nn::Sequential alone = make();
  // The mean over ranks of the gradients of the sum of losses.
  torch::optim::SGD plain(alone->parameters(), 1e-3 / comm()->size());
  for (int step = 0; step < 8; ++step) {
    optimizer->zero_grad();
    loss_of(together, samples.narrow(0, comm()->rank() * batch, batch), [](const torch::Tensor& x) {
      return functions::allreduce(comm(), x);
    }).backward();
    optimizer->step();
    plain.zero_grad();
    loss_of(alone, samples, [](const torch::Tensor& x) { return x; }).backward();
    plain.step();
  }
  for (std::size_t p = 0; p < alone->parameters().size(); ++p) {
    EXPECT_TRUE(torch::allclose(together->parameters()[p], alone->parameters()[p], 1e-4, 1e-6));
  }
  verify_equal(*comm(), together->parameters());
}

}  // namespace
}  // namespace chainmail
