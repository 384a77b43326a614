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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using ::testing::AllOf;
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
  torch::manual_seed(static_cast<std::uint64_t>(1000 * rank + 10 * step) + index);
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
  Options options = {};
  IsUsed is_used = {};
  int steps = 12;
  int infinite_step = -1;  ///< the one in which rank 1's gradients are infinite
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
    if (step == what.infinite_step && comm->rank() == 1) loss = loss * INFINITY;
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
    what.infinite_step = 10;  // no step, and half the scale
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
          const double scale = own.options.loss_scaler->get_scale();
          EXPECT_GT(scale, 1024);
          EXPECT_EQ(std::fmod(std::log2(scale), 2), 1) << "never halved";
          for (const std::size_t i : kRounded) {
            torch::Tensor sum = torch::zeros(values[i].sizes(), torch::kDouble);
            turns.take([&] {
              for (int step = 0; step < own.steps; ++step) {
                if (step == own.infinite_step) continue;
                sum += mean_gradient(values[i], i, comm->size(), step);
              }
            });
            const double error = (values[i].to(torch::kDouble) + sum).abs().max().item<double>();
            EXPECT_LE(error, 2 * bound_of(wire)) << "with what the skipped step has lost";
          }
        });
      }
    }
  }
}

/// The squares of what rounding loses of `values`, and of them, summed up: blocks of 256 with a
/// scale of 8 significant bits, rounded up.
std::pair<double, double> lost_and_given(const torch::Tensor& values) {
  double lost = 0;
  double given = 0;
  for (const torch::Tensor& block : values.flatten().to(torch::kDouble).split(256)) {
    const double exact = block.abs().max().item<double>() / 127;
    const double unit = std::exp2(std::floor(std::log2(exact)) - 7);
    const double scale = std::ceil(exact / unit) * unit;
    lost += (block - (block / scale).round() * scale).square().sum().item<double>();
    given += block.square().sum().item<double>();
  }
  return {lost, given};
}

// Acceptance row A20.
TEST(IntegerWire, SaysWhatWasRoundedAwayAndHowManyBytesTravel) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    torch::Tensor matrix = torch::zeros({30, 100}).requires_grad_();
    torch::Tensor bias = torch::zeros({10}).requires_grad_();
    const auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(Tensors{matrix, bias}, 1.0), comm,
        {.overlap = false, .wire = "int8"});  // buckets stay as they are
    const auto gradient = [](int rank) {
      return torch::sin(torch::arange(3000, torch::kFloat) * (rank + 1)).view({30, 100});
    };
    double lost = 0;
    double given = 0;
    for (const int rank : {0, 1}) {
      const auto [more_lost, more_given] = lost_and_given(gradient(rank) / 2);
      lost += more_lost;
      given += more_given;
    }
    for (int step = 0; step < 20; ++step) {
      optimizer->zero_grad();
      // After the first step nothing, so that only the first one can be what is said.
      const torch::Tensor factor = gradient(comm->rank()) * (step == 0 ? 1 : 0);
      ((matrix * factor).sum() + bias.sum()).backward();
      const StepResult result = optimizer->step();
      if (step < 2) {
        EXPECT_EQ(result.wire_error, 0);
      } else if (step < 16) {
        EXPECT_NEAR(result.wire_error, std::sqrt(lost / given), 1e-4 * std::sqrt(lost / given));
      }
      // 3000 codes and 12 scales, a gap up to a whole block, the bias, two sums, two marks each.
      const std::int64_t rounded = 3072 + 2 * 12;
      EXPECT_GE(result.wire_bytes, rounded + 4 * (10 + 2 + 4));
      EXPECT_LE(result.wire_bytes, rounded + 4 * (10 + 2 + 4) + 4 * 1024);
    }
  });
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    torch::Tensor matrix = torch::zeros({30, 100}).requires_grad_();
    const auto optimizer =
        create_multi_node_optimizer(std::make_unique<optim::SGD>(Tensors{matrix}, 1.0), comm, {});
    matrix.sum().backward();
    const StepResult result = optimizer->step();
    EXPECT_EQ(result.wire_error, 0);
    EXPECT_GE(result.wire_bytes, 4 * 3000);
    comm->impl().name = "gloo";
    EXPECT_EQ(optimizer->step().wire_bytes, 0);
  });
}

// Infinite gradients on one rank, the first or the last of a parameter, whose block goes on behind
// it: no step anywhere, what was owed stays owed, and the next steps know nothing of it. In the one
// after it nobody has a gradient of the second matrix.
TEST(IntegerWire, AStepThatIsSkippedIsSkippedByAll) {
  const auto skips = [](const CommPtr& comm, const std::string& wire, bool is_double) {
    Tensors parameters = make_parameters();
    const auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(parameters, 1.0), comm,
        {.double_buffering = is_double, .skip_nonfinite = true, .wire = wire});
    for (int step = 0; step < 5; ++step) {
      optimizer->zero_grad();
      const double factor = step == 1 && comm->rank() == 1 ? INFINITY : 1.0;
      torch::Tensor loss = torch::zeros({});
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (step == 2 && i == kRounded[1]) continue;
        const torch::Tensor row = parameters[i].flatten();
        loss = loss + (row[0] + row[row.numel() - 1]) * factor + row.sum();
      }
      loss.backward();
      const int applied = is_double ? step - 1 : step;
      EXPECT_EQ(optimizer->step().is_applied, applied >= 0 && applied != 1) << "step " << step;
    }
    optimizer->flush();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor inner = parameters[i].flatten().slice(0, 1, parameters[i].numel() - 1);
      EXPECT_TRUE(torch::allclose(inner, torch::full_like(inner, i == kRounded[1] ? -3.0 : -4.0), 0,
                                  wire == "int8" ? 0.05 : 0.6))
          << "parameter " << i;
    }
    verify_equal(*comm, parameters);
  };
  for (const char* wire : {"int8", "int4"}) {
    for (const bool is_double : {false, true}) {
      for (const auto& nodes : {std::vector<int>{1, 1}, {2, 1, 1}}) {
        testing::with_communicator(nodes, "flat", {},
                                   [&](const CommPtr& comm) { skips(comm, wire, is_double); });
      }
    }
  }
}

// As when auto takes another wire, and when a parameter becomes one of a type that is not rounded.
TEST(IntegerWire, WhatIsOwedIsPaidOnOtherWires) {
  for (const bool is_converted : {false, true}) {
    testing::with_communicator({2, 1}, "hierarchical", {}, [&](const CommPtr& comm) {
      torch::Tensor matrix = torch::zeros({600, 600}).requires_grad_();
      const auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::SGD>(Tensors{matrix}, 1.0), comm,
                                      {.wire = is_converted ? "int8" : "auto"});
      const torch::Tensor factor =
          torch::sin(torch::arange(360000, torch::kFloat)).view({600, 600});
      const auto step = [&](double size) {
        optimizer->zero_grad();
        ((matrix * factor).sum() * size * (comm->rank() + 1)).backward();
        optimizer->step();
        return (matrix.detach().to(torch::kDouble) + factor.to(torch::kDouble) * 20)
            .abs()
            .max()
            .item<double>();
      };
      const auto use = [&](const char* wire) {
        MultiNodeOptimizerState state = optimizer->state();
        state.wire = wire;
        optimizer->load_state(state);
      };
      if (!is_converted) use("int8");
      double error = 0;
      for (int i = 0; i < 10; ++i) error = step(1);
      EXPECT_GT(error, 1e-3) << "nothing is owed";
      if (is_converted) {
        matrix.set_data(matrix.detach().to(torch::kDouble));
        optimizer->synchronize();
      } else {
        use("native");
      }
      EXPECT_LE(step(0), 1e-4);
    });
  }
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
  EXPECT_THAT(refusal("naive", {.wire = "auto"}),
              HasSubstr("wire = \"auto\": communicator 'naive'"));
  EXPECT_THAT(refusal("flat", {.wire = "int7"}),
              AllOf(HasSubstr("unknown wire format \"int7\""), HasSubstr("int4, auto")));
  EXPECT_THAT(refusal("flat", {.shard = Sharding::kNode, .wire = "auto"}),
              HasSubstr("goes neither with .shard"));
  EXPECT_THAT(refusal("flat", {.shard = Sharding::kAll, .wire = "int4"}),
              HasSubstr("the wire int4: what is rounded away is kept where slices"));
}

}  // namespace
}  // namespace chainmail
