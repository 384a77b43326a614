// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The fused kernels against the optimizers' own step().

#include "plugin/train/optimizer/fused_step.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include <torch/torch.h>

namespace chainmail::internal {
namespace {

namespace optim = torch::optim;
using Tensors = std::vector<torch::Tensor>;
using Factory = std::function<std::unique_ptr<optim::Optimizer>(Tensors)>;

Tensors make_parameters() {
  const auto floats = torch::linspace(-1, 1, 35).view({5, 7}).clone().requires_grad_();
  const auto doubles = torch::linspace(-2, 1, 9, torch::kDouble).requires_grad_();
  const auto channels = torch::linspace(0, 1, 24)
                            .view({2, 3, 2, 2})
                            .contiguous(at::MemoryFormat::ChannelsLast)
                            .requires_grad_();
  const auto unused = torch::ones({3}, torch::requires_grad());
  return {floats, doubles, channels, unused};
}

void set_gradients(const Tensors& parameters, int step, std::size_t without) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& parameter = parameters[i];
    if (i == without || i == 3) {
      parameter.mutable_grad().reset();
      continue;
    }
    parameter.mutable_grad() =
        (parameter.detach() * (step + 1) + 0.1 * static_cast<double>(i)).sin();
  }
}

struct Case {
  const char* name;
  Factory make;
};

std::vector<Case> cases() {
  const auto sgd = [](const optim::SGDOptions& options) {
    return [options](Tensors p) { return std::make_unique<optim::SGD>(std::move(p), options); };
  };
  const auto adam = [](const optim::AdamOptions& options) {
    return [options](Tensors p) { return std::make_unique<optim::Adam>(std::move(p), options); };
  };
  const auto adamw = [](const optim::AdamWOptions& options) {
    return [options](Tensors p) { return std::make_unique<optim::AdamW>(std::move(p), options); };
  };
  return {
      {"sgd", sgd(optim::SGDOptions(0.1))},
      {"sgd, weight decay", sgd(optim::SGDOptions(0.1).weight_decay(0.01))},
      {"momentum", sgd(optim::SGDOptions(0.1).momentum(0.9).dampening(0.2))},
      {"nesterov", sgd(optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.1))},
      {"adam", adam(optim::AdamOptions(0.01))},
      {"adam, all options",
       adam(optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1).eps(1e-4).betas({0.8, 0.9}))},
      {"adamw", adamw(optim::AdamWOptions(0.01))},
      {"adamw, amsgrad", adamw(optim::AdamWOptions(0.01).amsgrad(true).weight_decay(0.2))}};
}

TEST(FusedStep, DoesWhatTheOptimizerDoes) {
  for (const Case& test_case : cases()) {
    SCOPED_TRACE(test_case.name);
    const Tensors expected = make_parameters();
    const Tensors actual = make_parameters();
    const auto reference = test_case.make(expected);
    const auto fused = test_case.make(actual);
    for (int step = 0; step < 6; ++step) {
      // The second parameter joins later, so its state is younger.
      set_gradients(expected, step, step < 2 ? 1 : 4);
      set_gradients(actual, step, step < 2 ? 1 : 4);
      // Both ways take turns on one state.
      if (step == 4) {
        fused->step();
      } else {
        ASSERT_TRUE(fused_step(*fused));
      }
      reference->step();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-5, 1e-6))
            << "step " << step << ", parameter " << i;
      }
    }
    EXPECT_EQ(fused->state().size(), reference->state().size());
  }
}

// State that the new options cannot use would be read past its end.
TEST(FusedStep, LeavesChangedOptionsToTheOptimizer) {
  const Tensors parameters = make_parameters();
  set_gradients(parameters, 0, 4);
  optim::Adam adam(parameters, optim::AdamOptions(0.1));
  ASSERT_TRUE(fused_step(adam));
  static_cast<optim::AdamOptions&>(adam.param_groups()[0].options()).amsgrad(true);
  EXPECT_FALSE(fused_step(adam));

  optim::SGD sgd(parameters, optim::SGDOptions(0.1).momentum(0.9));
  ASSERT_TRUE(fused_step(sgd));
  static_cast<optim::SGDOptions&>(sgd.param_groups()[0].options()).momentum(0);
  EXPECT_FALSE(fused_step(sgd));
}

TEST(FusedStep, LeavesOthersAlone) {
  struct OwnSgd final : optim::SGD {
    using optim::SGD::SGD;
  };
  const Tensors parameters = make_parameters();
  set_gradients(parameters, 0, 4);
  const torch::Tensor before = parameters[0].detach().clone();
  OwnSgd derived(parameters, optim::SGDOptions(0.1));
  EXPECT_FALSE(fused_step(derived));
  optim::RMSprop other(parameters);
  EXPECT_FALSE(fused_step(other));

  const auto half = torch::ones({3}, torch::kHalf).requires_grad_();
  half.mutable_grad() = torch::ones({3}, torch::kHalf);
  optim::SGD with_half(Tensors{parameters[0], half}, optim::SGDOptions(0.1));
  EXPECT_FALSE(fused_step(with_half));

  parameters[0].mutable_grad() = torch::ones({7, 5}).t();
  optim::SGD strided(Tensors{parameters[0]}, optim::SGDOptions(0.1));
  EXPECT_FALSE(fused_step(strided));

  parameters[0].mutable_grad() = torch::ones({5, 7}).to_sparse();
  EXPECT_FALSE(fused_step(strided));
  EXPECT_TRUE(torch::equal(before, parameters[0]));
}

}  // namespace
}  // namespace chainmail::internal
