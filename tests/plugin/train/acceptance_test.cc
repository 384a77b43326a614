// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ChainerMN's users relied on, with every communicator and one to eight ranks; see
// docs/maintainers/acceptance.md for the cases that other tests have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/mean_grad.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

struct Job {
  std::string communicator;
  std::vector<int> shape;
};

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  for (const char* name :
       {"naive", "flat", "hierarchical", "two_dimensional", "single_node", "auto"}) {
    for (const std::vector<int>& shape : std::vector<std::vector<int>>{
             {1}, {2}, {3}, {4}, {8}, {1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 4}}) {
      if (std::string(name) != "single_node" || shape.size() == 1) {
        jobs.push_back({name, shape});
      }
    }
  }
  return jobs;
}

void in_all_jobs(const std::function<void(const CommPtr&)>& body,
                 const CommunicatorOptions& options = {}) {
  for (const Job& job : all_jobs()) {
    SCOPED_TRACE(job.communicator);
    testing::with_communicator(job.shape, job.communicator, options, body);
  }
}

// ChainerMN's model: weights of (3, 2), (4, 3) and (5,).
struct ModelImpl : nn::Module {
  ModelImpl() {
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{3, 2}, {4, 3}, {5}}) {
      weights.push_back(
          register_parameter("w" + std::to_string(weights.size()), torch::zeros(shape)));
    }
    statistics = register_buffer("statistics", torch::zeros({7}, torch::kDouble));
  }
  void set_grads(double value) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i].mutable_grad() =
          torch::full_like(weights[i], value + static_cast<double>(i)).detach();
    }
  }
  std::vector<torch::Tensor> weights;
  torch::Tensor statistics;
};
TORCH_MODULE(Model);

bool is_all(const torch::Tensor& tensor, double value, double tolerance = 1e-5) {
  return tensor.sub(value).abs().le(tolerance * std::max(1.0, std::abs(value))).all().item<bool>();
}

TEST(Acceptance, A1MeanOfGradientsTwice) {
  in_all_jobs([](const CommPtr& comm) {
    Model model;
    for (int round = 0; round < 2; ++round) {
      model->set_grads(comm->rank());
      multi_node_mean_grad(*comm, &model);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(
            is_all(model->weights[i].grad(), (comm->size() - 1) / 2.0 + static_cast<double>(i)));
      }
    }
  });
}

TEST(Acceptance, A1MeanOfGradientsInHalfPrecisionBetweenNodes) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  in_all_jobs(
      [](const CommPtr& comm) {
        Model model;
        model->set_grads(comm->rank() + 0.1);
        multi_node_mean_grad(*comm, &model);
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(is_all(model->weights[i].grad(),
                             (comm->size() - 1) / 2.0 + 0.1 + static_cast<double>(i), 1e-2));
        }
      },
      options);
}

// Nothing becomes infinite or zero, and the marks that say who has a gradient travel beside them.
TEST(Acceptance, A1HugeAndTinyGradientsInHalfPrecisionBetweenNodes) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  in_all_jobs(
      [](const CommPtr& comm) {
        Model model;
        for (const double value : {70000.0, 1e30, 3e-8, 1e-20}) {
          for (torch::Tensor& weight : model->weights) {
            weight.mutable_grad() = torch::full_like(weight, value).detach();
          }
          if (comm->rank() % 2 == 1) model->weights[2].mutable_grad().reset();
          multi_node_mean_grad(*comm, &model, /*zero_fill=*/true);
          const double share = (comm->size() + 1) / 2 / static_cast<double>(comm->size());
          for (std::size_t i = 0; i < 3; ++i) {
            ASSERT_TRUE(model->weights[i].grad().defined()) << value;
            const torch::Tensor relative = model->weights[i].grad().to(torch::kDouble) / value;
            EXPECT_TRUE(is_all(relative, i == 2 ? share : 1.0, 2e-3)) << value << " of " << i;
          }
        }
      },
      options);
}

TEST(Acceptance, A2AGradientThatNobodyHasOrOnlyEvenRanks) {
  in_all_jobs([](const CommPtr& comm) {
    Model model;
    model->set_grads(comm->rank());
    model->weights[1].mutable_grad().reset();
    multi_node_mean_grad(*comm, &model);
    EXPECT_FALSE(model->weights[1].grad().defined());
    EXPECT_TRUE(is_all(model->weights[2].grad(), (comm->size() - 1) / 2.0 + 2));

    model->set_grads(comm->rank());
    double expected = 0;
    for (int r = 0; r < comm->size(); r += 2) expected += (r + 2.0) / comm->size();
    if (comm->rank() % 2 == 1) model->weights[2].mutable_grad().reset();
    multi_node_mean_grad(*comm, &model, /*zero_fill=*/true);
    EXPECT_TRUE(is_all(model->weights[2].grad(), expected));
    EXPECT_TRUE(is_all(model->weights[0].grad(), (comm->size() - 1) / 2.0));
  });
}

TEST(Acceptance, A3WithoutZeroFillADifferenceIsAnErrorOnAllRanks) {
  for (const Job& job : all_jobs()) {
    for (const bool with_optimizer : {false, true}) {
      const auto errors =
          testing::errors_with_communicator(job.shape, job.communicator, [&](const CommPtr& comm) {
            Model model;
            std::unique_ptr<MultiNodeOptimizer> optimizer;
            if (with_optimizer) {
              optimizer = create_multi_node_optimizer(
                  std::make_unique<torch::optim::SGD>(model->parameters(), 1.0), comm,
                  {.model = &model, .zero_fill = false});
            }
            model->set_grads(comm->rank());
            if (comm->rank() % 2 == 1) model->weights[1].mutable_grad().reset();
            if (optimizer) {
              optimizer->step();
            } else {
              multi_node_mean_grad(*comm, &model);
            }
          });
      if (errors.size() > 1) {
        EXPECT_THAT(errors, Each(AllOf(HasSubstr("'w1'"), HasSubstr("none on rank"))))
            << job.communicator << " with " << errors.size() << " ranks";
      }
    }
  }
}

TEST(Acceptance, A7BroadcastIsBitForBit) {
  in_all_jobs([](const CommPtr& comm) {
    Model model;
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& weight : model->weights) weight.fill_(comm->rank() + 0.1);
      model->statistics.fill_(comm->rank() + 0.3);
    }
    bcast_data(*comm, &model);
    for (const torch::Tensor& weight : model->weights) {
      EXPECT_TRUE(torch::equal(weight, torch::full_like(weight, 0.1)));
    }
    EXPECT_TRUE(torch::equal(model->statistics, torch::full({7}, 0.3, torch::kDouble)));
  });
}

// SGD with rate 1 leaves the negative sum of all means: none is lost, neither in the first step nor
// after going on with a new optimizer.
TEST(Acceptance, A12NoGradientIsLostAtStartOrResume) {
  in_all_jobs([](const CommPtr& comm) {
    Model model;
    double sum = 0;
    for (int run = 0; run < 2; ++run) {
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      for (int step = 1; step <= 3; ++step) {
        optimizer->zero_grad();
        model->set_grads(comm->rank() + step);
        EXPECT_TRUE(optimizer->step().is_applied);
        sum += (comm->size() - 1) / 2.0 + step;
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(is_all(model->weights[i], -sum - static_cast<double>(i) * (3 * run + step)));
        }
      }
    }
    verify_equal(*comm, model->parameters());
  });
}

}  // namespace
}  // namespace chainmail
