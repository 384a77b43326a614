// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Local steps whose exchanges are rounded to integers: what the nodes have changed arrives, however
// many exchanges there are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

constexpr int kWireSteps = 200;
constexpr std::size_t kRoundedMatrix = 1;  // the only one that is rounded

std::vector<torch::Tensor> zeros_of_sizes() {
  std::vector<torch::Tensor> parameters;
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{7}, {50, 41}, {3, 5}}) {
    parameters.push_back(torch::zeros(sizes).requires_grad_());
  }
  return parameters;
}

/// The same in every step, so that what a rounding loses it loses the same way each time. Smooth
/// in the element, other for every rank.
torch::Tensor constant_gradient(const torch::Tensor& parameter, int rank) {
  return torch::sin(torch::arange(parameter.numel(), torch::kFloat) * 0.7 + rank)
      .view(parameter.sizes());
}

struct LossOfRounding {
  double of_matrix = 0;
  double of_others = 0;
};

/// Plain SGD of rate 1 and means of parameters: they are minus the sum of the mean gradients.
LossOfRounding largest_error(const std::vector<int>& nodes, const std::string& wire,
                             const LocalSteps& local) {
  LossOfRounding largest;
  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    const std::vector<torch::Tensor> parameters = zeros_of_sizes();
    const auto optimizer =
        create_multi_node_optimizer(std::make_unique<torch::optim::SGD>(parameters, 1.0), comm,
                                    {.wire = wire, .local_steps = local});
    for (int step = 0; step < kWireSteps; ++step) {
      optimizer->zero_grad();
      torch::Tensor loss = torch::zeros({});
      for (const torch::Tensor& parameter : parameters) {
        loss = loss + (parameter * constant_gradient(parameter, comm->rank())).sum();
      }
      loss.backward();
      optimizer->step();
    }
    optimizer->flush();
    verify_equal(*comm, parameters);
    if (comm->rank() != 0) return;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor mean = torch::zeros(parameters[i].sizes(), torch::kDouble);
      int rank = 0;
      for (const int ranks : nodes) {  // every node counts alike
        for (int r = 0; r < ranks; ++r, ++rank) {
          mean += constant_gradient(parameters[i], rank).to(torch::kDouble) /
                  (ranks * static_cast<double>(nodes.size()));
        }
      }
      const double error = (parameters[i].detach().to(torch::kDouble) + mean * kWireSteps)
                               .abs()
                               .max()
                               .item<double>();
      double& known = i == kRoundedMatrix ? largest.of_matrix : largest.of_others;
      known = std::max(known, error);
    }
  });
  return largest;
}

TEST(LocalWire, WhatNodesHaveChangedArrives) {
  const LocalSteps local{
      .steps = 4, .fragments = 2, .delay = 1, .outer_lr = 1, .outer_momentum = 0};
  for (const auto& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {2, 1}, {1, 1, 1}}) {
    for (const char* wire : {"int8", "int4"}) {
      SCOPED_TRACE(std::string(wire) + ", " + std::to_string(nodes.size()) + " nodes of " +
                   std::to_string(nodes.front()));
      const LossOfRounding lost = largest_error(nodes, wire, local);
      // Four steps of at most 1, half a scale of a contribution and of a result. Without feedback
      // fifty exchanges lose up to fifty times as much.
      EXPECT_LE(lost.of_matrix, wire == std::string("int8") ? 4.0 / 127 : 4.0 / 7);
      EXPECT_GT(lost.of_matrix, 1e-3) << "not rounded at all";
      EXPECT_LE(lost.of_others, 1e-3);
    }
  }
}

// Before `start` gradients travel, on the same wire.
TEST(LocalWire, AlsoOfStepsThatAreMadeTogether) {
  const LocalSteps local{
      .steps = 4, .fragments = 1, .delay = 2, .outer_lr = 1, .outer_momentum = 0, .start = 50};
  const LossOfRounding lost = largest_error({1, 1}, "int8", local);
  EXPECT_LE(lost.of_matrix, 6.0 / 127);
  EXPECT_LE(lost.of_others, 1e-3);
}

}  // namespace
}  // namespace chainmail::testing
