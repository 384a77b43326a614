// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Staleness one: step k applies the mean gradient of step k-1, taken at the weights before it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

constexpr double kRate = 0.1;

// Loss c(rank, step) * w^2 / 2 has the gradient c * w.
double factor(int rank, int step) { return 1 + rank + 0.5 * step; }

double mean_factor(int ranks, int step) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += factor(rank, step);
  return sum / ranks;
}

void backward(const torch::Tensor& weight, int rank, int step) {
  (weight.square().sum() * (factor(rank, step) / 2)).backward();
}

TEST(DoubleBuffering, FollowsTheTraceAndFlushes) {
  for (const bool overlaps : {false, true}) {
    for (const char* name : {"flat", "hierarchical", "two_dimensional"}) {
      testing::with_communicator({2, 1}, name, {}, [&](const CommPtr& comm) {
        const auto weight = torch::full({3}, 2.0, torch::kDouble).requires_grad_();
        auto optimizer = create_multi_node_optimizer(
            std::make_unique<optim::SGD>(std::vector<torch::Tensor>{weight}, kRate), comm,
            {.overlap = overlaps, .double_buffering = true});
        double now = 2;       // w_k
        double gradient = 0;  // mean gradient of the step before
        for (int step = 0; step < 8; ++step) {
          optimizer->zero_grad(step % 3 != 0);
          backward(weight, comm->rank(), step);
          const StepResult result = optimizer->step();
          EXPECT_EQ(result.is_applied, step > 0);
          const double next = now - kRate * gradient;
          gradient = mean_factor(3, step) * now;
          now = next;
          EXPECT_TRUE(torch::allclose(weight, torch::full({3}, now, torch::kDouble))) << step;
        }
        EXPECT_TRUE(optimizer->flush());
        now -= kRate * gradient;
        EXPECT_TRUE(torch::allclose(weight, torch::full({3}, now, torch::kDouble)));
        EXPECT_FALSE(weight.grad().defined());
        EXPECT_FALSE(optimizer->flush());
        EXPECT_NO_THROW(verify_equal(*comm, {weight}));
        // And on from there: the pipeline fills again.
        backward(weight, comm->rank(), 0);
        EXPECT_FALSE(optimizer->step().is_applied);
      });
    }
  }
}

TEST(DoubleBuffering, CountsOptimizerSteps) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const auto weight = torch::ones({3}, torch::requires_grad());
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::Adam>(std::vector<torch::Tensor>{weight}), comm,
        {.double_buffering = true});
    const auto count = [&]() -> std::int64_t {
      const auto& state = optimizer->actual_optimizer().state();
      const auto found = state.find(weight.unsafeGetTensorImpl());
      return found == state.end() ? 0 : static_cast<optim::AdamParamState&>(*found->second).step();
    };
    std::vector<std::int64_t> counts;
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      backward(weight, comm->rank(), step);
      optimizer->step();
      counts.push_back(count());
    }
    EXPECT_EQ(counts, (std::vector<std::int64_t>{0, 1, 2, 3}));
    optimizer->flush();
    EXPECT_EQ(count(), 4);
  });
}

TEST(DoubleBuffering, AccumulationCountsOnceAndASecondExchangeIsRefused) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto weight = torch::full({3}, 2.0, torch::kDouble).requires_grad_();
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(std::vector<torch::Tensor>{weight}, kRate), comm,
        {.double_buffering = true});
    double now = 2;
    double gradient = 0;
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      {
        const auto guard = optimizer->no_sync();
        backward(weight, comm->rank(), 2 * step);
      }
      backward(weight, comm->rank(), 2 * step + 1);
      if (step == 2) {
        try {
          backward(weight, comm->rank(), 0);
          ADD_FAILURE() << "a second exchange was not refused";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("no_sync()"));
        }
        return;
      }
      optimizer->step();
      const double next = now - kRate * gradient;
      gradient = (mean_factor(2, 2 * step) + mean_factor(2, 2 * step + 1)) * now;
      now = next;
      EXPECT_TRUE(torch::allclose(weight, torch::full({3}, now, torch::kDouble))) << step;
    }
  });
}

TEST(DoubleBuffering, AnAddedParameterLosesNoGradient) {
  testing::with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto weight = torch::full({3}, 2.0, torch::kDouble).requires_grad_();
    const auto added = torch::full({2}, comm->rank() + 1.0, torch::kDouble).requires_grad_();
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(std::vector<torch::Tensor>{weight}, kRate), comm,
        {.double_buffering = true});
    double now = 2;
    double gradient = 0;
    for (int step = 0; step < 6; ++step) {
      optimizer->zero_grad();
      if (step == 3) optimizer->actual_optimizer().param_groups()[0].params().push_back(added);
      backward(weight, comm->rank(), step);
      EXPECT_EQ(optimizer->step().is_applied, step > 0);
      const double next = now - kRate * gradient;
      gradient = mean_factor(3, step) * now;
      now = next;
      EXPECT_TRUE(torch::allclose(weight, torch::full({3}, now, torch::kDouble))) << step;
      EXPECT_NO_THROW(
          verify_equal(*comm, optimizer->actual_optimizer().param_groups()[0].params()));
    }
  });
}

TEST(DoubleBuffering, IsNothingForNaive) {
  const auto errors = testing::errors_with_communicator({2}, "naive", [](const CommPtr& comm) {
    const auto weight = torch::ones({3}, torch::requires_grad());
    (void)create_multi_node_optimizer(
        std::make_unique<optim::SGD>(std::vector<torch::Tensor>{weight}, kRate), comm,
        {.double_buffering = true});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("'naive' exchanges gradients one by one"));
  }
}

}  // namespace
}  // namespace chainmail
