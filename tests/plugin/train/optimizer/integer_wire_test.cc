// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Training with gradients that travel as int8 and int4: what is applied over many steps is what was
// given, but for one or two roundings.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<torch::Tensor>;
using Options = MultiNodeOptimizerOptions;

const std::vector<std::vector<int>> kShapes = {{1, 1}, {2, 2}, {2, 1}, {1, 1, 1}};
const std::vector<std::string> kNames = {"flat", "hierarchical", "two_dimensional"};

/// A matrix that is rounded between ones that are not, and a second matrix of another size.
Tensors make_parameters() {
  Tensors parameters;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{7}, {50, 41}, {3, 5}, {40, 300}, {33}}) {
    parameters.push_back(torch::zeros(sizes).requires_grad_());
  }
  return parameters;
}
constexpr std::size_t kRounded[] = {1, 3};

/// What a rank's backward gives parameter `index` in a step.
torch::Tensor gradient_of(const torch::Tensor& parameter, std::size_t index, int rank, int step) {
  torch::manual_seed(1000 * rank + 10 * step + static_cast<int>(index));
  return torch::randn(parameter.sizes());
}

torch::Tensor mean_gradient(const torch::Tensor& parameter, std::size_t index, int ranks,
                            int step) {
  torch::Tensor mean = torch::zeros(parameter.sizes(), torch::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    mean += gradient_of(parameter, index, rank, step).to(torch::kDouble) / ranks;
  }
  return mean;
}

using IsUsed = std::function<bool(std::size_t index, int rank, int step)>;

/// Seeds are of the process: one rank draws after the other.
class Turns {
 public:
  void take(const std::function<void()>& body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    body();
  }

 private:
  std::mutex mutex_;
};

struct Training {
  Options options;
  IsUsed is_used;
  int steps = 12;
};

/// Plain SGD of rate 1 from zeros: parameters are minus the sums of the means.
Tensors train(const CommPtr& comm, Turns& turns, const Training& what) {
  Tensors parameters = make_parameters();
  const auto optimizer = create_multi_node_optimizer(std::make_unique<optim::SGD>(parameters, 1.0),
                                                     comm, what.options);
  for (int step = 0; step < what.steps; ++step) {
    std::vector<torch::Tensor> factors;
    turns.take([&] {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        factors.push_back(gradient_of(parameters[i], i, comm->rank(), step));
      }
    });
    torch::Tensor loss = torch::zeros({});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (what.is_used && !what.is_used(i, comm->rank(), step)) continue;
      loss = loss + (parameters[i] * factors[i]).sum();
    }
    if (what.options.loss_scaler) loss = what.options.loss_scaler->scale(loss);
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
  }
  optimizer->flush();
  verify_equal(*comm, parameters);
  Tensors values;
  for (const torch::Tensor& parameter : parameters) values.push_back(parameter.detach().clone());
  return values;
}

/// Half a scale, of at most 5 standard deviations of what nodes give, for the contributions and for
/// the result, and that twice.
double bound_of(const std::string& wire) { return (wire == "int8" ? 5.0 / 127 : 5.0 / 7) * 2; }

void expect_nothing_lost(const std::vector<int>& nodes, const std::string& name,
                         const std::string& wire, Training what) {
  SCOPED_TRACE(name + " " + wire + ", " + std::to_string(nodes.size()) + " nodes");
  what.options.wire = wire;
  Turns turns;
  testing::with_communicator(nodes, name, {}, [&](const CommPtr& comm) {
    const Tensors values = train(comm, turns, what);
    for (std::size_t i = 0; i < values.size(); ++i) {
      torch::Tensor sum = torch::zeros(values[i].sizes(), torch::kDouble);
      turns.take([&] {
        for (int step = 0; step < what.steps; ++step) {
          for (int rank = 0; rank < comm->size(); ++rank) {
            if (what.is_used && !what.is_used(i, rank, step)) continue;
            sum += gradient_of(values[i], i, rank, step).to(torch::kDouble) / comm->size();
          }
        }
      });
      const bool is_rounded = i == kRounded[0] || i == kRounded[1];
      const double error = (values[i].to(torch::kDouble) + sum).abs().max().item<double>();
      EXPECT_LE(error, is_rounded ? bound_of(wire) : 1e-5) << "parameter " << i;
      if (is_rounded) {
        EXPECT_GT(error, 1e-4) << "not rounded at all";
      }
    }
  });
}

TEST(IntegerWire, OverManyStepsNothingIsLost) {
  for (const auto& nodes : kShapes) {
    for (const std::string& name : kNames) {
      for (const char* wire : {"int8", "int4"}) expect_nothing_lost(nodes, name, wire, {});
    }
  }
}

TEST(IntegerWire, NorWithBucketsThatAreRebuiltNorWithDoubleBuffering) {
  for (const auto& nodes : {std::vector<int>{2, 2}, {1, 1, 1}}) {
    for (const char* wire : {"int8", "int4"}) {
      // Buckets of some parameters each, in the order of the first backward from then on.
      expect_nothing_lost(nodes, "two_dimensional", wire,
                          {.options = {.overlap = true, .bucket_bytes = 4096}});
      expect_nothing_lost(nodes, "two_dimensional", wire, {.options = {.double_buffering = true}});
      expect_nothing_lost(
          nodes, "flat", wire,
          {.options = {.overlap = true, .bucket_bytes = 4096, .double_buffering = true}});
    }
  }
}

TEST(IntegerWire, NorInSlicesOfTheRanksOfANode) {
  for (const auto& nodes : {std::vector<int>{2, 2}, {2, 1}, {2, 2, 2}}) {
    for (const bool frees : {false, true}) {
      expect_nothing_lost(nodes, "two_dimensional", "int8",
                          {.options = {.shard = Sharding::kNode, .free_gradients = frees}});
    }
  }
}

// Of parameter 1 nobody has a gradient in most steps, of parameter 3 some ranks: what earlier
// steps owe must not be paid into means that nobody uses.
TEST(IntegerWire, NorForParametersThatAreUnusedForAWhile) {
  const IsUsed is_used = [](std::size_t index, int rank, int step) {
    if (index == 1) return step == 0 || step == 11;
    return index != 3 || (rank + step) % 2 == 0;
  };
  for (const auto& nodes : kShapes) {
    for (const std::string& name : kNames) {
      expect_nothing_lost(nodes, name, "int4", {.is_used = is_used});
    }
    expect_nothing_lost(nodes, "flat", "int4",
                        {.options = {.double_buffering = true}, .is_used = is_used});
    expect_nothing_lost(nodes, "two_dimensional", "int4",
                        {.options = {.shard = Sharding::kNode}, .is_used = is_used});
    expect_nothing_lost(
        nodes, "two_dimensional", "int4",
        {.options = {.shard = Sharding::kNode, .free_gradients = true}, .is_used = is_used});
  }
}

TEST(IntegerWire, NorWhenTheLossScaleChanges) {
  for (const bool is_double : {false, true}) {
    Training what;
    what.options.double_buffering = is_double;
    what.steps = 20;
    for (const char* wire : {"int8", "int4"}) {
      for (const auto& nodes : {std::vector<int>{1, 1}, {1, 1, 1}}) {
        SCOPED_TRACE(std::string(wire) + (is_double ? " doubled" : ""));
        Turns turns;
        testing::with_communicator(nodes, "flat", {}, [&](const CommPtr& comm) {
          Training own = what;
          own.options.wire = wire;
          own.options.loss_scaler = std::make_shared<LossScaler>(
              LossScalerOptions{.initial_scale = 1024, .growth_factor = 4, .growth_interval = 3});
          const Tensors values = train(comm, turns, own);
          EXPECT_GT(own.options.loss_scaler->get_scale(), 1024);
          for (const std::size_t i : kRounded) {
            torch::Tensor sum = torch::zeros(values[i].sizes(), torch::kDouble);
            turns.take([&] {
              for (int step = 0; step < own.steps; ++step) {
                sum += mean_gradient(values[i], i, comm->size(), step);
              }
            });
            const double error = (values[i].to(torch::kDouble) + sum).abs().max().item<double>();
            EXPECT_LE(error, bound_of(wire));
          }
        });
      }
    }
  }
}

// An infinite gradient on one rank: no step anywhere, and what was owed stays owed.
TEST(IntegerWire, AStepThatIsSkippedIsSkippedByAll) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    Tensors parameters = make_parameters();
    const auto optimizer =
        create_multi_node_optimizer(std::make_unique<optim::SGD>(parameters, 1.0), comm,
                                    {.skip_nonfinite = true, .wire = "int8"});
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      const double factor = step == 1 && comm->rank() == 1 ? INFINITY : 1.0;
      torch::Tensor loss = torch::zeros({});
      for (const torch::Tensor& parameter : parameters) {
        loss = loss + parameter.flatten()[0] * factor + parameter.sum();
      }
      loss.backward();
      EXPECT_EQ(optimizer->step().is_applied, step != 1);
    }
    for (const torch::Tensor& parameter : parameters) {
      EXPECT_TRUE(torch::allclose(parameter.flatten().slice(0, 1),
                                  torch::full({parameter.numel() - 1}, -2.0), 0, 0.05));
    }
    verify_equal(*comm, parameters);
  });
}

TEST(IntegerWire, WhatCannotBeIsRefusedWithTheReason) {
  const auto refusal = [](const std::string& name, const Options& options) {
    std::string text;
    testing::with_communicator({1, 1}, name, {}, [&](const CommPtr& comm) {
      try {
        const auto optimizer = create_multi_node_optimizer(
            std::make_unique<optim::SGD>(make_parameters(), 1.0), comm, options);
        ADD_FAILURE() << "not refused";
      } catch (const InvalidArgument& error) {
        if (comm->rank() == 0) text = error.what();
      }
      comm->barrier();
    });
    return text;
  };
  EXPECT_THAT(refusal("naive", {.wire = "int8"}), HasSubstr("one by one"));
  EXPECT_THAT(refusal("flat", {.wire = "int7"}), HasSubstr("unknown wire format \"int7\""));
  EXPECT_THAT(refusal("flat", {.shard = Sharding::kAll, .wire = "int4"}),
              HasSubstr("the wire int4: what is rounded away is kept where slices"));
}

}  // namespace
}  // namespace chainmail
