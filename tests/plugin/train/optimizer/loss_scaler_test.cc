// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/loss_scaler.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using CommPtr = std::shared_ptr<Communicator>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LossScaler, GrowsAfterAnIntervalAndShrinksAtOnce) {
  LossScaler scaler({.initial_scale = 8, .growth_interval = 3});
  for (int i = 0; i < 2; ++i) scaler.update(true, 8);
  EXPECT_EQ(scaler.get_scale(), 8);
  scaler.update(true, 8);
  EXPECT_EQ(scaler.get_scale(), 16);
  scaler.update(true, 16);
  scaler.update(true, 16);
  scaler.update(false, 16);
  EXPECT_EQ(scaler.get_scale(), 8);
  scaler.update(true, 8);  // the interval begins again
  scaler.update(true, 8);
  EXPECT_EQ(scaler.get_scale(), 8);
  scaler.update(true, 8);
  EXPECT_EQ(scaler.get_scale(), 16);
}

TEST(LossScaler, OneMistakeShrinksOnce) {
  LossScaler scaler({.initial_scale = 8});
  scaler.update(false, 8);
  scaler.update(false, 8);  // was under way already
  EXPECT_EQ(scaler.get_scale(), 4);
  scaler.update(false, 4);
  EXPECT_EQ(scaler.get_scale(), 2);
}

TEST(LossScaler, StaysInTheRangeOfFloat32) {
  LossScaler scaler({.growth_interval = 1});
  for (int i = 0; i < 300; ++i) scaler.update(true, scaler.get_scale());
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.get_scale())));
  for (int i = 0; i < 600; ++i) scaler.update(false, scaler.get_scale());
  EXPECT_TRUE(std::isfinite(1 / static_cast<float>(scaler.get_scale())));
  EXPECT_GT(static_cast<float>(scaler.get_scale()), 0);
}

TEST(LossScaler, StateGoesToAFileAndBack) {
  LossScaler scaler({.initial_scale = 8, .growth_interval = 3});
  scaler.update(true, 8);
  scaler.update(true, 8);
  LossScaler other({.growth_interval = 3});
  other.load_state(scaler.state());
  other.update(true, 8);
  EXPECT_EQ(other.get_scale(), 16);
  EXPECT_THROW(other.load_state({.scale = 0}), InvalidArgument);
  EXPECT_THROW(other.load_state({.scale = kInfinity}), InvalidArgument);
  EXPECT_EQ(other.get_scale(), 16);
}

TEST(LossScaler, RefusesOptionsThatCannotWork) {
  EXPECT_THROW(LossScaler({.initial_scale = 0}), InvalidArgument);
  EXPECT_THROW(LossScaler({.growth_factor = 1}), InvalidArgument);
  EXPECT_THROW(LossScaler({.backoff_factor = 1}), InvalidArgument);
  EXPECT_THROW(LossScaler({.backoff_factor = 0}), InvalidArgument);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), InvalidArgument);
}

TEST(LossScaler, ScalesInFloat32) {
  const LossScaler scaler({.initial_scale = 131072});
  const auto scaled = scaler.scale(torch::ones({}, torch::kHalf));
  EXPECT_EQ(scaled.scalar_type(), torch::kFloat);
  EXPECT_EQ(scaled.item<float>(), 131072);
}

// One weight, a gradient by hand: SGD with rate 1 makes it minus the sum of what was applied.
struct Trainer {
  explicit Trainer(const CommPtr& communicator, const LossScalerOptions& options,
                   bool double_buffering = false, c10::ScalarType dtype = torch::kFloat)
      : comm(communicator),
        weight(torch::zeros({2}, torch::dtype(dtype).requires_grad(true))),
        scaler(std::make_shared<LossScaler>(options)),
        optimizer(create_multi_node_optimizer(
            std::make_unique<torch::optim::SGD>(std::vector<torch::Tensor>{weight}, 1.0), comm,
            {.double_buffering = double_buffering, .loss_scaler = scaler})) {}

  void backward(double gradient) {
    const auto loss = (weight.to(torch::kFloat) * gradient).sum();
    scaler->scale(loss).backward();
  }
  StepResult step(double gradient) {
    optimizer->zero_grad();
    backward(gradient);
    return optimizer->step();
  }

  CommPtr comm;
  torch::Tensor weight;
  std::shared_ptr<LossScaler> scaler;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

TEST(LossScalerOverRanks, TakesTheScaleOutOfTheMeans) {
  for (const char* name : {"naive", "flat", "hierarchical"}) {
    testing::with_communicator({2, 2}, name, {}, [](const CommPtr& comm) {
      Trainer trainer(comm, {.initial_scale = 1024});
      const StepResult result = trainer.step(comm->rank() + 1);
      EXPECT_TRUE(result.is_applied);
      EXPECT_TRUE(trainer.weight.eq(-2.5).all().item<bool>());
      EXPECT_NEAR(result.grad_norm, 2.5 * std::sqrt(2.0), 1e-5);
    });
  }
}

TEST(LossScalerOverRanks, SmallGradientsOfFloat16SurviveTheWire) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  testing::with_communicator({1, 1}, "hierarchical", options, [](const CommPtr& comm) {
    Trainer trainer(comm, {});
    trainer.step(3e-8);  // zero in float16
    EXPECT_NEAR(trainer.weight[0].item<double>(), -3e-8, 1e-10);
  });
}

TEST(LossScalerOverRanks, AllSkipWhatOneRankCouldNotCompute) {
  testing::with_communicator({2, 2}, "hierarchical", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = 1024, .growth_interval = 2});
    const double broken = comm->rank() == 1 ? kInfinity : 1.0;
    EXPECT_FALSE(trainer.step(broken).is_applied);
    EXPECT_TRUE(trainer.weight.eq(0).all().item<bool>());
    EXPECT_EQ(trainer.scaler->get_scale(), 512);
    EXPECT_TRUE(trainer.step(1).is_applied);
    EXPECT_TRUE(trainer.step(1).is_applied);
    EXPECT_TRUE(trainer.weight.eq(-2).all().item<bool>());
    EXPECT_EQ(trainer.scaler->get_scale(), 1024);
    const double not_a_number = comm->rank() == 0 ? std::nan("") : 1.0;
    EXPECT_FALSE(trainer.step(not_a_number).is_applied);
    EXPECT_EQ(trainer.scaler->get_scale(), 512);
    EXPECT_NO_THROW(verify_equal(*comm, trainer.weight.detach()));
  });
}

TEST(LossScalerOverRanks, ClipsTheRealNorm) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const auto weight = torch::zeros({4}, torch::requires_grad());
    const auto scaler = std::make_shared<LossScaler>(LossScalerOptions{});
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(std::vector<torch::Tensor>{weight}, 1.0), comm,
        {.max_grad_norm = 1, .loss_scaler = scaler});
    scaler->scale((weight * 3).sum()).backward();
    EXPECT_NEAR(optimizer->step().grad_norm, 6, 1e-5);
    EXPECT_NEAR(weight.norm().item<double>(), 1, 1e-4);
  });
}

TEST(LossScalerOverRanks, AccumulatedBackwardsShareOneScale) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = 256, .growth_interval = 1});
    for (int step = 0; step < 3; ++step) {
      trainer.optimizer->zero_grad();
      {
        const auto off = trainer.optimizer->no_sync();
        trainer.backward(comm->rank());
      }
      trainer.backward(1);
      trainer.optimizer->step();
    }
    EXPECT_EQ(trainer.scaler->get_scale(), 2048);
    EXPECT_TRUE(trainer.weight.eq(-4.5).all().item<bool>());
  });
}

// The gradient that a step applies was made one step earlier, with another scale.
TEST(LossScalerOverRanks, DoubleBufferingUnscalesByTheOldScale) {
  testing::with_communicator({2, 2}, "hierarchical", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = 256, .growth_interval = 1}, true);
    EXPECT_FALSE(trainer.step(1).is_applied);
    double sum = 0;
    for (int step = 2; step < 6; ++step) {
      EXPECT_TRUE(trainer.step(step).is_applied);
      sum += step - 1;
      EXPECT_TRUE(trainer.weight.eq(-sum).all().item<bool>()) << trainer.weight;
    }
    EXPECT_EQ(trainer.scaler->get_scale(), 256 * 16);
    EXPECT_TRUE(trainer.optimizer->flush());
    EXPECT_TRUE(trainer.weight.eq(-sum - 5).all().item<bool>()) << trainer.weight;
  });
}

TEST(LossScalerOverRanks, DoubleBufferingSkipsTheBrokenGradientOnly) {
  testing::with_communicator({4}, "flat", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = 256}, true);
    trainer.step(1);
    EXPECT_TRUE(trainer.step(comm->rank() == 2 ? kInfinity : 1).is_applied);
    EXPECT_FALSE(trainer.step(4).is_applied);  // made with 256
    EXPECT_EQ(trainer.scaler->get_scale(), 128);
    EXPECT_TRUE(trainer.step(8).is_applied);
    EXPECT_TRUE(trainer.weight.eq(-1 - 4).all().item<bool>()) << trainer.weight;
    trainer.optimizer->flush();
    EXPECT_TRUE(trainer.weight.eq(-1 - 4 - 8).all().item<bool>()) << trainer.weight;
  });
}

// Finds a scale that a float16 model can live with: gradients beyond 65504 are infinite.
TEST(LossScalerOverRanks, AFloat16ModelFindsItsScale) {
  testing::with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = 65536}, false, torch::kHalf);
    int skipped = 0;
    while (!trainer.step(16).is_applied) ASSERT_LT(++skipped, 20);
    EXPECT_EQ(trainer.scaler->get_scale(), 2048);
    EXPECT_TRUE(trainer.weight.eq(-16).all().item<bool>());
  });
}

TEST(LossScalerOverRanks, TheStateOfRankZeroCounts) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    Trainer trainer(comm, {.initial_scale = comm->rank() == 0 ? 32.0 : 64.0});
    EXPECT_EQ(trainer.scaler->get_scale(), 32);
    trainer.scaler->load_state({.scale = comm->rank() == 0 ? 4.0 : 2.0, .finite_steps = 7});
    trainer.optimizer->synchronize();
    EXPECT_EQ(trainer.scaler->state().scale, 4);
    EXPECT_EQ(trainer.scaler->state().finite_steps, 7);
  });
}

}  // namespace
}  // namespace chainmail
