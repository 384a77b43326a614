// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A sharded model trains like the same model whole on every rank, bit for bit.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/optimizer.h>

#include "tests/plugin/nn/sharded/sharded_checks.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr int kEqualSteps = 50;

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<torch::Tensor>)>;

struct OptimizerCase {
  std::string name;
  MakeOptimizer make;
};

// Tensors shorter than a vector, and slices that end inside of one.
nn::Sequential uneven_model() {
  return filled(nn::Sequential(nn::Linear(20, 65), nn::Tanh(), nn::Linear(65, 63),
                               nn::LayerNorm(nn::LayerNormOptions({63})), nn::ReLU(),
                               nn::Linear(63, 16), nn::PReLU(), nn::Linear(16, 1)));
}

std::vector<OptimizerCase> equal_optimizers() {
  return {{"SGD",
           [](auto parameters) {
             return std::make_unique<optim::SGD>(
                 std::move(parameters), optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
           }},
          {"Adam",
           [](auto parameters) {
             return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions(1e-2));
           }},
          {"AdamW", [](auto parameters) {
             return std::make_unique<optim::AdamW>(std::move(parameters),
                                                   optim::AdamWOptions(1e-2));
           }}};
}

torch::Tensor distance_of(const torch::Tensor& y, const CommPtr& comm, int step) {
  const torch::Tensor t = some_waves(y.sizes(), 100 + 10 * step + comm->rank());
  return (y - t).square().mean();
}

// Both models side by side, on samples of each rank's own.
void train_both(const CommPtr& comm, const OptimizerCase& one) {
  nn::Sequential whole = uneven_model();
  MultiNodeOptimizerOptions options;
  options.model = whole;
  options.use_fused_step = false;  // its bits are others than those of torch's own step
  const auto expected =
      create_multi_node_optimizer(one.make(whole->parameters()), comm, std::move(options));
  nn::Sequential sharded = create_sharded_model(uneven_model(), comm);
  const auto optimizer = one.make(sharded_parameters(sharded));
  for (int step = 0; step < kEqualSteps; ++step) {
    const torch::Tensor x = some_waves({6, 20}, step * 7 + comm->rank());
    expected->zero_grad();
    optimizer->zero_grad();
    const torch::Tensor loss = distance_of(whole->forward(x), comm, step);
    const torch::Tensor sharded_loss = distance_of(sharded->forward(x), comm, step);
    ASSERT_TRUE(has_same_bits(loss.view({1}), sharded_loss.view({1})))
        << one.name << ", step " << step << ": " << loss << sharded_loss;
    loss.backward();
    sharded_loss.backward();
    const auto layers = whole->children();
    const auto units = sharded->children();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (const auto unit = std::dynamic_pointer_cast<ShardedModule>(units[i])) {
        expect_gradients(*unit, *layers[i], *comm);
      }
    }
    expected->step();
    optimizer->step();
  }
}

struct Nodes {
  std::vector<int> sizes;
  std::string communicator = "hierarchical";
};

class ShardedEquality : public ::testing::TestWithParam<Nodes> {};

TEST_P(ShardedEquality, LossesAndGradientsAreThoseOfWholeModels) {
  on_nodes_of(
      GetParam().sizes,
      [](const CommPtr& comm) {
        for (const OptimizerCase& one : equal_optimizers()) train_both(comm, one);
      },
      GetParam().communicator);
}

INSTANTIATE_TEST_SUITE_P(OneNode, ShardedEquality,
                         ::testing::Values(Nodes{{1}}, Nodes{{2}}, Nodes{{3}}, Nodes{{4}}));
INSTANTIATE_TEST_SUITE_P(TwoNodes, ShardedEquality,
                         ::testing::Values(Nodes{{1, 1}}, Nodes{{2, 2}},
                                           Nodes{{2, 2}, "two_dimensional"}, Nodes{{3, 3}},
                                           Nodes{{4, 4}}, Nodes{{2, 1}}));

// Twice a gather, once a reduction, for each unit and step, however much is fetched ahead.
TEST(ShardedCountsTest, AStepGathersTwiceAndReducesOnce) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    nn::Sequential model = create_sharded_model(uneven_model(), comm);
    const auto unit = std::dynamic_pointer_cast<ShardedModule>(model->children().front());
    constexpr std::uint64_t kUnits = 6;
    optim::SGD optimizer(sharded_parameters(model), 0.01);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      optimizer.zero_grad();
      model->forward(torch::ones({3, 20})).sum().backward();
      optimizer.step();
      EXPECT_EQ(unit->counts().gathers, 2 * kUnits * step);
      EXPECT_EQ(unit->counts().reductions, kUnits * step);
      EXPECT_EQ(unit->counts().whole_bytes, 0U);
    }
  });
}

TEST(ShardedClipping, TheNormIsThatOfAllSlices) {
  on_nodes_of({3}, [](const CommPtr& comm) {
    nn::Sequential whole = uneven_model();
    nn::Sequential model = create_sharded_model(uneven_model(), comm);
    const torch::Tensor x = some_waves({6, 20}, comm->rank());
    whole->forward(x).square().sum().backward();
    average_gradients(whole->parameters(), *comm);
    model->forward(x).square().sum().backward();
    constexpr double kMost = 0.5;
    const double expected = nn::utils::clip_grad_norm_(whole->parameters(), kMost);
    const double got = clip_sharded_grad_norm(comm, model, kMost);
    EXPECT_GT(got, kMost);
    EXPECT_NEAR(got, expected, 1e-5 * expected);
    for (const double of_rank : comm->allgather_obj(got)) EXPECT_EQ(of_rank, got);
    EXPECT_NEAR(clip_sharded_grad_norm(comm, model, kMost), kMost, 1e-5);
  });
}

// Memory that a layout of its own has, as of channels_last weights.
TEST(ShardedLayouts, StridedParametersKeepTheirLayout) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    const auto make = [] {
      nn::Conv2d conv = filled(nn::Conv2d(nn::Conv2dOptions(5, 9, 3)));
      conv->weight.set_data(conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
      return conv;
    };
    nn::Conv2d whole = make();
    Sharded<nn::Conv2d> conv(make(), comm);
    const torch::Tensor x = some_waves({2, 5, 8, 8}, comm->rank());
    const torch::Tensor y = conv->forward(x);
    EXPECT_TRUE(torch::equal(y, whole->forward(x)));
    y.square().sum().backward();
    whole->forward(x).square().sum().backward();
    average_gradients(whole->parameters(), *comm);
    const auto gathered = conv->gather();
    EXPECT_TRUE(conv->module()->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(torch::equal(conv->module()->weight, whole->weight));
    // Slices are of elements as they lie in memory.
    const torch::Tensor gradient =
        whole->weight.grad().permute({0, 2, 3, 1}).contiguous().flatten();
    const torch::Tensor own = conv->named_parameters()["weight"].grad();
    EXPECT_TRUE(torch::equal(own, own_parts({gradient, whole->bias}, *comm)[0]));
  });
}

}  // namespace
}  // namespace chainmail::testing
