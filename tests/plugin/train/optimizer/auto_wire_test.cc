// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// wire = "auto": when it chooses, what it goes on with, and that it trains like the others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "plugin/train/wire/auto_wire.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using ::testing::AllOf;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<torch::Tensor>;

// Whatever it chooses after sixteen steps, with a mean on its way or without.
TEST(AutoWire, TrainsLikeTheOthers) {
  for (const bool is_double : {false, true}) {
    testing::with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      torch::Tensor matrix = torch::zeros({600, 600}).requires_grad_();  // 1.4 MB
      torch::Tensor bias = torch::zeros({10}).requires_grad_();
      const auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::SGD>(Tensors{matrix, bias}, 1.0),
                                      comm, {.double_buffering = is_double, .wire = "auto"});
      const torch::Tensor factor =
          torch::sin(torch::arange(360000, torch::kFloat)).view({600, 600});
      for (int step = 0; step < 40; ++step) {
        optimizer->zero_grad();
        ((matrix * factor).sum() * (comm->rank() + 1) + bias.sum()).backward();
        optimizer->step();
      }
      optimizer->flush();
      verify_equal(*comm, {matrix, bias});
      // Ranks give 1, 2 and 3 times the factor.
      EXPECT_LE((matrix.detach() + factor * 80).abs().max().item<double>(), 0.2);
      // A third of each rank's 1, rounded if 16 bits were chosen.
      EXPECT_TRUE(torch::allclose(bias.detach(), torch::full({10}, -40.0), 1e-3));
    });
  }
}

// What a checkpoint says that it has chosen.
TEST(AutoWire, GoesOnWithWhatItHasChosen) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    torch::Tensor matrix = torch::zeros({600, 600}).requires_grad_();
    const auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(Tensors{matrix}, 1.0), comm, {.wire = "auto"});
    EXPECT_EQ(optimizer->state().wire, "native");
    const torch::Tensor factor = torch::sin(torch::arange(360000, torch::kFloat)).view({600, 600});
    for (const char* wire : {"int8", "float16", "int8", "native"}) {
      MultiNodeOptimizerState state = optimizer->state();
      state.wire = wire;
      optimizer->load_state(state);
      EXPECT_EQ(optimizer->state().wire, wire);
      StepResult result;
      for (int step = 0; step < 20; ++step) {
        optimizer->zero_grad();
        ((matrix * factor).sum() * (comm->rank() + 1)).backward();
        result = optimizer->step();
      }
      EXPECT_EQ(optimizer->state().wire, wire) << "looked again too soon";
      const std::string name = wire;
      const double bytes = name == "int8" ? 1.01 : name == "float16" ? 2 : 4;
      EXPECT_NEAR(static_cast<double>(result.wire_bytes), bytes * 360000, 0.02 * bytes * 360000);
      EXPECT_EQ(result.wire_error > 0, name == "int8");
    }
    verify_equal(*comm, {matrix});
    // Ranks give 1 and 2 times the factor; nothing is owed any more.
    EXPECT_LE((matrix.detach() + factor * 120).abs().max().item<double>(), 0.2);
  });
  EXPECT_EQ(
      [] {
        std::optional<std::string> wire;
        testing::with_communicator({1}, "flat", {}, [&](const CommPtr& comm) {
          wire = create_multi_node_optimizer(
                     std::make_unique<optim::SGD>(Tensors{torch::zeros({2}).requires_grad_()}, 1.0),
                     comm, {.wire = "int8"})
                     ->state()
                     .wire;
        });
        return wire;
      }(),
      std::nullopt);
}

// Also in a job that goes on from before its first choice. A rank that leaves the last step out
// shows by what it does instead that the other one comes to it.
TEST(AutoWire, ChoosesAfterSixteenSteps) {
  const auto errors = testing::errors_with_communicator({1, 1}, "flat", [](const CommPtr& comm) {
    torch::Tensor matrix = torch::zeros({600, 600}).requires_grad_();
    const auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(Tensors{matrix}, 1.0), comm, {.wire = "auto"});
    for (int step = 0; step < 16; ++step) {
      if (step == 3) optimizer->load_state(optimizer->state());
      optimizer->zero_grad();
      matrix.sum().backward();
      if (step < 15 || comm->rank() == 0) optimizer->step();
    }
    comm->barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("times of steps"), HasSubstr("barrier")));
  }
}

TEST(AutoWire, IsRefusedWhereWaitsAreNotMeasured) {
  const auto check = [](const torch::Tensor& bias) {
    internal::AutoWire::check({{"weight", torch::zeros({2})}, {"bias", bias}});
  };
  EXPECT_NO_THROW(check(torch::zeros({2})));
  std::vector<std::string> compared;
  internal::describe_devices({{"weight", torch::zeros({2})},
                              {"bias", torch::zeros({2}, torch::TensorOptions(torch::kMeta))}},
                             compared);
  EXPECT_EQ(compared, std::vector<std::string>{"parameter 'bias' on meta"});
  EXPECT_THAT([&] { check(torch::zeros({2}, torch::TensorOptions(torch::kMeta))); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("'bias' is on meta"), HasSubstr("name a wire"))));
}

}  // namespace
}  // namespace chainmail
