// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Several optimizers on the same parameters, one of which is sharded: whoever would step without
// gradients is refused by name; whatever shares a model without that goes on.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>
#include <chainmail/nn/sharded.h>
#include <chainmail/train/distributed_model.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Two layers that optimizers share.
struct TwoLayers {
  nn::Sequential model = nn::Sequential(nn::Linear(40, 90), nn::Tanh(), nn::Linear(90, 70));

  TwoLayers() { fill(*model, 0.1); }
  Tensors of(std::size_t layer) { return model[layer]->parameters(); }
  void backward(const CommPtr& comm, int step) {
    model->forward(torch::linspace(-1, 1 + step + comm->rank(), 80).view({2, 40}))
        .pow(2)
        .sum()
        .backward();
  }
};

std::unique_ptr<MultiNodeOptimizer> make_for(const CommPtr& comm, const Tensors& parameters,
                                             MultiNodeOptimizerOptions options) {
  return create_multi_node_optimizer(make_fast_adam(parameters), comm, std::move(options));
}

// Trains all layers with one optimizer.
Tensors train_alone(const CommPtr& comm, int steps) {
  TwoLayers layers;
  const auto optimizer = make_for(comm, layers.model->parameters(), {.model = &layers.model});
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    layers.backward(comm, step);
    optimizer->step();
  }
  return layers.model->parameters();
}

void expect_parameters(const Tensors& expected, const Tensors& got) {
  for (std::size_t p = 0; p < expected.size(); ++p)
    EXPECT_TRUE(same_bits(expected[p], got[p])) << p;
}

void expect_taken(const std::string& name, const std::function<void()>& use) {
  try {
    use();
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("parameter '" + name + "' is trained by another"),
                                    HasSubstr("parameters of its own")));
  }
}

// The first one has lost nothing by it.
TEST(LostGradients, ASecondOptimizerOfTheSameParametersIsRefused) {
  std::vector<MultiNodeOptimizerOptions> others = all_sharded();
  others.emplace_back();
  for (const MultiNodeOptimizerOptions& second : others) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      TwoLayers layers;
      const auto optimizer =
          make_for(comm, layers.model->parameters(), sliced({.model = &layers.model}));
      for (int step = 0; step < 3; ++step) {
        expect_taken("param_groups[0][0]", [&] { (void)make_for(comm, layers.of(2), second); });
        expect_taken("0.weight", [&] {
          MultiNodeOptimizerOptions with_model = second;
          with_model.model = &layers.model;
          (void)make_for(comm, layers.model->parameters(), with_model);
        });
        optimizer->zero_grad();
        layers.backward(comm, step);
        optimizer->step();
      }
      expect_parameters(train_alone(comm, 3), layers.model->parameters());
    });
  }
}

TEST(LostGradients, AShardedOptimizerOfAnotherOnesParametersIsRefused) {
  for (const MultiNodeOptimizerOptions& second : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      TwoLayers layers;
      auto first = make_for(comm, layers.model->parameters(), {.model = &layers.model});
      expect_taken("param_groups[0][1]", [&] {
        (void)make_for(comm, {make_parameters({50})[0], layers.of(2)[0]}, second);
      });
      // Once it has ended, the parameters are free.
      first.reset();
      for (int round = 0; round < 2; ++round) {
        const auto optimizer = make_for(comm, layers.model->parameters(), second);
        optimizer->zero_grad();
        layers.backward(comm, 0);
        EXPECT_TRUE(optimizer->step().is_applied);
      }
      EXPECT_FALSE(same_bits(train_alone(comm, 0)[0], layers.of(0)[0]));
    });
  }
}

TEST(LostGradients, OptimizersOfPartsOfAModelShareABackward) {
  std::vector<MultiNodeOptimizerOptions> others = all_sharded();
  others.emplace_back();
  for (const MultiNodeOptimizerOptions& second : others) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      TwoLayers layers;
      nn::Linear last(layers.model->ptr<nn::LinearImpl>(2));
      MultiNodeOptimizerOptions with_part = second;
      with_part.model = &last;
      const auto first = make_for(comm, layers.of(0), sliced());
      const auto other = make_for(comm, layers.of(2), with_part);
      for (int step = 0; step < 4; ++step) {
        first->zero_grad();
        other->zero_grad();
        layers.backward(comm, step);
        first->step();
        other->step();
      }
      expect_parameters(train_alone(comm, 4), layers.model->parameters());
    });
  }
}

// In turns, as programs do that freeze one part while they train the other.
TEST(LostGradients, WhatIsUnfrozenForBothIsRefusedByTheNextStep) {
  with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
    TwoLayers layers;
    const auto set_trained = [&](std::size_t layer, bool is_trained) {
      for (const torch::Tensor& parameter : layers.of(layer))
        parameter.set_requires_grad(is_trained);
    };
    set_trained(2, false);
    const auto first = make_for(comm, layers.model->parameters(), sliced({.model = &layers.model}));
    set_trained(2, true);
    set_trained(0, false);
    const auto second =
        make_for(comm, layers.model->parameters(), sliced({.model = &layers.model}));
    for (int step = 0; step < 4; ++step) {
      MultiNodeOptimizer& optimizer = step % 2 == 0 ? *first : *second;
      set_trained(0, step % 2 == 0);
      set_trained(2, step % 2 != 0);
      optimizer.zero_grad();
      layers.backward(comm, step);
      EXPECT_TRUE(optimizer.step().is_applied);
    }
    set_trained(0, true);
    expect_taken("2.weight", [&] { first->step(); });
  });
}

// What it has averaged is averaged once more.
TEST(LostGradients, ADistributedModelBesideItLosesNothing) {
  for (const bool is_first : {true, false}) {
    with_communicator({2, 2}, "two_dimensional", {}, [&](const CommPtr& comm) {
      const auto train = [&](const MultiNodeOptimizerOptions& options) {
        nn::Linear net(30, 40);
        fill(*net, 0.2);
        std::unique_ptr<MultiNodeOptimizer> optimizer;
        const auto make = [&] { optimizer = make_for(comm, net->parameters(), options); };
        if (!is_first) make();
        DistributedModel model(net, comm);
        if (is_first) make();
        for (int step = 0; step < 3; ++step) {
          optimizer->zero_grad();
          model(torch::linspace(-1, 1 + comm->rank(), 60).view({2, 30})).pow(2).sum().backward();
          EXPECT_TRUE(optimizer->step().is_applied);
        }
        return net->parameters();
      };
      expect_parameters(train({}), train(sliced()));
    });
  }
}

TEST(LostGradients, AUnitOfAnOptimizersParametersIsRefused) {
  with_communicator({2}, "two_dimensional", {}, [&](const CommPtr& comm) {
    nn::Linear layer(8, 8);
    fill(*layer, 0);
    auto optimizer = make_for(comm, {layer->bias}, {});
    try {
      const Sharded<nn::Linear> unit(layer, comm, {.name = "layer"});
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("'bias' is averaged by a multi-node optimizer"));
    }
    layer->forward(torch::ones({1, 8})).sum().backward();
    EXPECT_TRUE(optimizer->step().is_applied);
    optimizer.reset();
    Sharded<nn::Linear> unit(layer, comm, {.name = "layer"});
    unit->forward(torch::ones({1, 8})).sum().backward();
  });
}

}  // namespace
}  // namespace chainmail::testing
