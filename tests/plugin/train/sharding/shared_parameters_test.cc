// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One copy of the parameters per node: the bits of every rank's own copy, a step's changes for all
// at once, and memory of one's own before and after.

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using ::testing::HasSubstr;

std::unique_ptr<optim::Optimizer> make_adamw(Tensors parameters) {
  return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamWOptions(1e-2));
}

void on_nodes(const std::vector<std::vector<int>>& shapes,
              const std::function<void(const CommPtr&)>& body) {
  for (const auto& nodes : or_all_shapes(shapes))
    with_communicator(nodes, "two_dimensional", {}, body);
}

void wait_for_all(const CommPtr& comm) { (void)comm->allgather_obj(0); }

TEST(SharedParameters, GiveTheSameBits) {
  on_nodes({{1}, {2}, {3}, {2, 2}, {2, 1}, {1, 1}}, [](const CommPtr& comm) {
    for (const bool clips : {false, true}) {
      MultiNodeOptimizerOptions options;
      options.double_buffering = clips;
      options.max_grad_norm = clips ? 1e-6 : 0;
      Trained whole(comm, kMixedSizes, make_adamw, options);
      Trained parts(comm, kMixedSizes, make_adamw, shared(options));
      for (std::int64_t step = 0; step < 20; ++step) {
        const auto has = [&](std::size_t p) { return p != 2 || step % 3 != 1; };
        whole.step(step, comm->rank(), has);
        parts.step(step, comm->rank(), has);
      }
      expect_same(whole, parts, "shared");
    }
  });
}

TEST(SharedParameters, AreOnePieceOfMemoryUntilTheOptimizerEnds) {
  on_nodes({{3}, {2, 2}}, [](const CommPtr& comm) {
    Trained parts(comm, kMixedSizes, make_adamw, shared());
    torch::Tensor parameter = parts.parameters[4].detach();
    if (comm->intra_rank() + 1 == comm->intra_size()) parameter[20010] = 7;
    wait_for_all(comm);
    EXPECT_EQ(parameter[20010].item<float>(), 7);
    wait_for_all(comm);
    parts.optimizer.reset();
    parameter = parts.parameters[4].detach();
    EXPECT_EQ(parameter[20010].item<float>(), 7);
    parameter[20010] = comm->rank();
    wait_for_all(comm);
    EXPECT_EQ(parameter[20010].item<float>(), comm->rank());
  });
}

// Steps with pauses at random places.
TEST(SharedParameters, AStepIsSeenByAllAfterItAndByNobodyBefore) {
  on_nodes({{2}, {3}, {2, 2}}, [](const CommPtr& comm) {
    const std::vector<std::int64_t> sizes = {9000, 63, 12300};
    Trained whole(comm, sizes, make_adamw, {});
    Trained parts(comm, sizes, make_adamw, shared());
    std::mt19937 random(static_cast<unsigned>(comm->rank()));
    const auto pause = [&] {
      const auto chosen = random() % 16;
      if (chosen == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (chosen < 4) std::this_thread::yield();
    };
    const auto holds = [&](const Tensors& values) {
      for (std::size_t p = 0; p < values.size(); ++p) {
        if (!same_bits(parts.parameters[p], values[p])) return false;
      }
      return true;
    };
    const std::int64_t steps = is_long_form() ? 10000 : 200;
    for (std::int64_t step = 0; step < steps; ++step) {
      Tensors before;
      for (const torch::Tensor& parameter : whole.parameters) {
        before.push_back(parameter.detach().clone());
      }
      for (Trained* const one : {&whole, &parts}) {
        one->optimizer->zero_grad();
        for (std::size_t p = 0; p < sizes.size(); ++p) {
          one->parameters[p].mutable_grad() =
              before[p] * (0.01 * static_cast<double>(step % 7 - 3) + comm->rank());
        }
      }
      whole.optimizer->step();
      pause();
      ASSERT_TRUE(holds(before)) << "rank " << comm->rank() << ", before step " << step;
      pause();
      parts.optimizer->step();
      ASSERT_TRUE(holds(whole.parameters)) << "rank " << comm->rank() << ", after step " << step;
      pause();
      ASSERT_TRUE(holds(whole.parameters)) << "rank " << comm->rank() << ", later, step " << step;
    }
  });
}

// By real backwards, with buckets on their way meanwhile: a rank that has all means may step while
// another one still computes.
TEST(SharedParameters, OverlapAndTheLearnedOrder) {
  on_nodes({{2}, {2, 2}}, [](const CommPtr& comm) {
    const auto train = [&](MultiNodeOptimizerOptions options) {
      nn::Sequential model(nn::Linear(40, 300), nn::Tanh(), nn::Linear(300, 130), nn::Tanh(),
                           nn::Linear(130, 3));
      fill(*model, 0.1);
      options.model = &model;
      options.overlap = true;
      options.bucket_bytes = 1 << 14;
      options.first_bucket_bytes = 1 << 10;
      const auto optimizer =
          create_multi_node_optimizer(make_adamw(model->parameters()), comm, std::move(options));
      for (int step = 0; step < 20; ++step) {
        optimizer->zero_grad();
        const torch::Tensor x =
            torch::linspace(-1, 1 + step + comm->rank(), 200).view({5, 40}).requires_grad_();
        model->forward(x).pow(2).sum().backward();
        optimizer->step();
      }
      return model->parameters();
    };
    const Tensors whole = train({});
    const Tensors parts = train(shared());
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(same_bits(whole[p], parts[p])) << p;
    }
  });
}

// A file that is loaded gives parameters other memory, on every rank; synchronize() spreads what
// rank 0 alone has loaded; layers come, and are frozen.
TEST(SharedParameters, FollowLoadedFilesAndAModelThatChanges) {
  on_nodes({{2}, {2, 2}, {2, 1}}, [](const CommPtr& comm) {
    const auto train = [&](const MultiNodeOptimizerOptions& options) {
      Tensors parameters = make_parameters({5000, 63, 9001});
      const auto optimizer = create_multi_node_optimizer(make_adamw(parameters), comm, options);
      for (std::int64_t step = 0; step < 20; ++step) {
        if (step == 3) parameters[2].set_data(torch::linspace(-2, 2, 9001));
        if (step == 6) {
          if (comm->rank() == 0) parameters[0].set_data(torch::linspace(-3, 3, 5000));
          optimizer->synchronize();
        }
        if (step == 9) parameters[2].set_requires_grad(false);
        if (step == 12) parameters[2].set_requires_grad(true);
        if (step == 15) {
          parameters.push_back(make_parameters({7000})[0]);
          optimizer->actual_optimizer().param_groups()[0].params().push_back(parameters.back());
        }
        optimizer->zero_grad();
        for (const torch::Tensor& parameter : parameters) {
          if (!parameter.requires_grad()) continue;
          parameter.mutable_grad() = gradient_of(parameter, step, comm->rank());
        }
        optimizer->step();
      }
      wait_for_all(comm);
      return parameters;
    };
    const Tensors whole = train({});
    const Tensors parts = train(shared());
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(same_bits(whole[p], parts[p])) << p;
    }
  });
}

void expect_not_shared(const std::string& why, const std::function<void(const CommPtr&)>& use) {
  for (const std::string& error : errors_with_communicator({2, 2}, "auto", use)) {
    EXPECT_THAT(error, HasSubstr(why));
  }
}

TEST(SharedParameters, WhatCannotBeDoneIsRefused) {
  expect_not_shared("set .shard", [](const CommPtr& comm) {
    const Trained whole(comm, kMixedSizes, make_adamw, {.share_parameters = true});
  });
  expect_not_shared("have memory in common", [](const CommPtr& comm) {
    const torch::Tensor all = torch::zeros({100});
    (void)create_multi_node_optimizer(make_adamw({all.narrow(0, 0, 60).detach().requires_grad_(),
                                                  all.narrow(0, 50, 50).detach().requires_grad_()}),
                                      comm, shared());
  });
  expect_not_shared("not in a row", [](const CommPtr& comm) {
    (void)create_multi_node_optimizer(
        make_adamw({torch::zeros({10, 10}).select(1, 0).detach().requires_grad_()}), comm,
        shared());
  });
  expect_not_shared("'option share_parameters = true'", [](const CommPtr& comm) {
    const Trained one(comm, kMixedSizes, make_adamw, comm->rank() == 2 ? shared() : sliced());
  });
}

TEST(SharedParameters, WithoutRoomThatIsAnErrorOnAllRanks) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto errors = errors_with_communicator({2}, "auto", [&](const CommPtr& comm) {
    const Tensors parameters{torch::zeros({4 << 20}).requires_grad_()};
    wait_for_all(comm);  // with all memory that the communicator itself needs
    const rlimit small{1 << 20, before.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    wait_for_all(comm);
    (void)create_multi_node_optimizer(make_adamw(parameters), comm, shared());
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("cannot map each other's memory"));
  }
}

}  // namespace
}  // namespace chainmail::testing
