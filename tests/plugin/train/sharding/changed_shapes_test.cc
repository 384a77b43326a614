// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Parameters that get another shape or type between two steps of a sharded optimizer, whose state
// is in slices of the old one: an error that names them on all ranks, before anything has changed.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kThreeSizes = {5000, 60, 9001};

// Expects InvalidArgument with both texts from `use`.
void expect_changed(const std::string& was, const std::string& now,
                    const std::function<void()>& use) {
  try {
    use();
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(was), HasSubstr(now)));
  }
}

TEST(ChangedShapes, AreRefusedByNameAndChangeNothing) {
  struct Change {
    std::size_t parameter;
    std::vector<std::int64_t> sizes;
    std::string now;
  };
  const std::vector<Change> changes = {{0, {3}, "is [3] now"},
                                       {0, {0}, "is [0] now"},
                                       {2, {9002}, "is [9002] now"},
                                       {1, {6, 10}, "is [6, 10] now"},
                                       {1, {1}, "is [1] now"}};
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      Trained whole(comm, kThreeSizes, make_fast_adam, {});
      Trained parts(comm, kThreeSizes, make_fast_adam, options);
      std::int64_t step = 0;
      const auto train = [&] {
        whole.step(step, comm->rank());
        parts.step(step++, comm->rank());
      };
      train();
      train();  // after the first one the order of buckets is learned, and state is whole for a
                // moment
      for (const Change& change : changes) {
        torch::Tensor& changed = parts.parameters[change.parameter];
        const torch::Tensor own = changed.detach();
        changed.set_data(torch::ones(change.sizes));
        const std::string name =
            "parameter 'param_groups[0][" + std::to_string(change.parameter) + "]'";
        const std::string was = "was [" + std::to_string(kThreeSizes[change.parameter]) + "]";
        expect_changed(name, change.now, [&] { parts.step(step, comm->rank()); });
        expect_changed(was, change.now, [&] { parts.optimizer->gather_state(); });
        expect_changed(was, change.now, [&] { parts.optimizer->synchronize(); });
        changed.set_data(own);
        expect_same(whole, parts, "refused");
        train();
      }
      expect_same(whole, parts, "after the old shapes came back");
    });
  }
}

// Backward begins the exchange where nothing has changed.
TEST(ChangedShapes, AreRefusedAfterABackwardThatLeavesItsGradients) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2}, "two_dimensional", {}, [&](const CommPtr& comm) {
      nn::Linear model(30, 40);
      fill(*model, 0.1);
      MultiNodeOptimizerOptions with_model = options;
      with_model.model = &model;
      const auto optimizer =
          create_multi_node_optimizer(make_fast_adam(model->parameters()), comm, with_model);
      model->forward(torch::ones({2, 30})).sum().backward();
      optimizer->step();
      const torch::Tensor own = model->weight.detach();
      const torch::Tensor bias = model->bias.detach().clone();
      optimizer->zero_grad();
      model->weight.set_data(torch::ones({40, 20}));
      model->forward(torch::ones({2, 20})).sum().backward();
      expect_changed("'weight' is [40, 20] now", "was [40, 30]", [&] { optimizer->step(); });
      EXPECT_TRUE(same_bits(bias, model->bias));
      EXPECT_TRUE(model->bias.grad().defined());
      optimizer->zero_grad();
      model->weight.set_data(own);
      model->forward(torch::ones({2, 30})).sum().backward();
      EXPECT_TRUE(optimizer->step().is_applied);
      EXPECT_FALSE(same_bits(bias, model->bias));
    });
  }
}

TEST(ChangedShapes, OnOneRankAreAMismatchOnAll) {
  const auto errors = errors_with_communicator({2, 1}, "two_dimensional", [](const CommPtr& comm) {
    Trained parts(comm, kThreeSizes, make_fast_adam, sliced());
    parts.step(0, comm->rank());
    if (comm->rank() == 1) parts.parameters[1].set_data(torch::ones({7}));
    parts.step(1, comm->rank());
  });
  EXPECT_THAT(errors, Each(HasSubstr("now with 'parameter param_groups[0][1] [7] Float'")));
}

// What is frozen meanwhile has its state all the same.
TEST(ChangedShapes, OfFrozenParametersWithStateAreRefused) {
  with_communicator({2}, "two_dimensional", {}, [](const CommPtr& comm) {
    Trained parts(comm, kThreeSizes, make_fast_adam, sliced());
    parts.step(0, comm->rank());
    parts.parameters[2].set_requires_grad(false);
    parts.step(1, comm->rank());
    const torch::Tensor own = parts.parameters[2].detach();
    parts.parameters[2].set_data(torch::ones({5}));
    expect_changed("is [5] now", "was [9001]", [&] { parts.step(2, comm->rank()); });
    parts.parameters[2].set_data(own);
    parts.parameters[2].set_requires_grad(true);
    parts.step(2, comm->rank());
  });
}

TEST(ChangedShapes, ANewParameterInTheOldOnesPlaceIsRight) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      Trained whole(comm, kThreeSizes, make_fast_adam, {});
      Trained parts(comm, kThreeSizes, make_fast_adam, options);
      for (Trained* const one : {&whole, &parts}) {
        one->step(0, comm->rank());
        one->parameters[0] = make_parameters({777})[0];
        one->optimizer->actual_optimizer().param_groups()[0].params()[0] = one->parameters[0];
        for (std::int64_t step = 1; step < 4; ++step) one->step(step, comm->rank());
      }
      expect_same(whole, parts, "with a new parameter");
    });
  }
}

TEST(ChangedShapes, AnotherTypeIsRightOnceNoMeanIsOnItsWay) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      MultiNodeOptimizerOptions plain;
      plain.use_fused_step = false;
      MultiNodeOptimizerOptions how = options;
      how.use_fused_step = false;
      Trained whole(comm, kThreeSizes, make_fast_adam, plain);
      Trained parts(comm, kThreeSizes, make_fast_adam, how);
      for (Trained* const one : {&whole, &parts}) {
        one->step(0, comm->rank());
        one->parameters[0].set_data(one->parameters[0].detach().to(torch::kDouble));
        for (std::int64_t step = 1; step < 4; ++step) one->step(step, comm->rank());
      }
      EXPECT_EQ(parts.parameters[0].scalar_type(), torch::kDouble);
      expect_same(whole, parts, "converted");
    });
  }
  with_communicator({2}, "two_dimensional", {}, [&](const CommPtr& comm) {
    Trained parts(comm, kThreeSizes, make_fast_adam, sliced({.double_buffering = true}));
    parts.step(0, comm->rank());
    const torch::Tensor own = parts.parameters[0].detach();
    parts.parameters[0].set_data(own.to(torch::kDouble));
    expect_changed("is of type Double now", "after flush()", [&] { parts.step(1, comm->rank()); });
    expect_changed("is of type Double now", "after flush()", [&] { parts.optimizer->flush(); });
    parts.parameters[0].set_data(own);
    EXPECT_TRUE(parts.optimizer->flush());
    parts.parameters[0].set_data(parts.parameters[0].detach().to(torch::kDouble));
    parts.step(1, comm->rank());
    EXPECT_TRUE(parts.step(2, comm->rank()).is_applied);
  });
}

}  // namespace
}  // namespace chainmail::testing
