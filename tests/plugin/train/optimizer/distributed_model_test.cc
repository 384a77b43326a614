// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/distributed_model.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

nn::Sequential make_net(double value) {
  nn::Sequential net(nn::Linear(3, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(), nn::Linear(8, 2));
  testing::fill(*net, value);
  return net;
}

torch::Tensor samples() { return torch::linspace(-1, 1, 12 * 3).view({12, 3}).sin(); }

TEST(DistributedModel, TheLoopOfOneProcessTrainsOnAll) {
  for (const char* name : {"naive", "flat", "hierarchical", "two_dimensional"}) {
    for (const bool overlap : {false, true}) {
      testing::with_communicator({2, 1}, name, {}, [&](const CommPtr& comm) {
        nn::Sequential net = make_net(comm->rank());
        DistributedModel model(net, comm,
                               {.overlap = overlap, .bucket_bytes = 100, .first_bucket_bytes = 10});
        torch::optim::Adam optimizer(model.parameters(), 0.01);
        nn::Sequential alone = make_net(0);
        torch::optim::Adam plain(alone->parameters(), 0.01);
        for (int step = 0; step < 5; ++step) {
          optimizer.zero_grad(step % 2 == 0);  // both ways
          model(samples().narrow(0, 4 * comm->rank(), 4)).pow(2).mean().backward();
          optimizer.step();
          plain.zero_grad();
          alone->forward(samples()).pow(2).mean().backward();
          plain.step();
        }
        for (std::size_t p = 0; p < net->parameters().size(); ++p) {
          EXPECT_TRUE(torch::allclose(net->parameters()[p], alone->parameters()[p], 1e-4, 1e-5));
        }
        EXPECT_NO_THROW(verify_equal(*comm, net->parameters()));
        EXPECT_EQ(model.gradient_bytes() == 0, comm->name() == "naive");
      });
    }
  }
}

// As docs/training.md has it.
TEST(DistributedModel, LbfgsTrainsWithTheMeanOfTheLosses) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear net(3, 1);
    testing::fill(*net, comm->rank());
    DistributedModel model(net, comm);
    torch::optim::LBFGS optimizer(model.parameters(),
                                  torch::optim::LBFGSOptions(1).line_search_fn("strong_wolfe"));
    const torch::Tensor x = samples().narrow(0, 6 * comm->rank(), 6);
    double last = 0;
    for (int step = 0; step < 3; ++step) {
      last = optimizer
                 .step([&] {
                   optimizer.zero_grad();
                   const torch::Tensor loss = (model(x) - comm->rank()).pow(2).mean();
                   loss.backward();
                   torch::Tensor mean = loss.detach().clone();
                   comm->allreduce_mean(mean);
                   return mean;
                 })
                 .item<double>();
    }
    EXPECT_NO_THROW(verify_equal(*comm, net->parameters()));
    EXPECT_LT(last, 0.25);  // what a constant reaches
  });
}

// Found on all ranks, before a tensor is sent, and by name.
TEST(DistributedModel, TensorsThatCannotTravelAreNamed) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const auto error_of = [&](nn::Module& net) -> std::string {
      try {
        const auto optimizer = create_multi_node_optimizer(
            std::make_unique<torch::optim::SGD>(net.parameters(), 0.1), comm, {.model = &net});
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "nothing";
    };
    nn::Linear expanded(2, 2);
    expanded->register_buffer("table", torch::ones({1}).expand({5}));
    EXPECT_THAT(error_of(*expanded), HasSubstr("buffer 'table' has elements that share memory"));
    nn::Linear complex(2, 2);
    complex->register_parameter("phase", torch::ones({2}, torch::kComplexFloat));
    EXPECT_THAT(error_of(*complex), HasSubstr("parameter 'phase' is complex"));
    complex->named_parameters()["phase"].set_requires_grad(false);
    EXPECT_EQ(error_of(*complex), "nothing");
  });
}

TEST(DistributedModel, ClippingBetweenBackwardAndStepSeesTheMeans) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear net(2, 2);
    testing::fill(*net, 0);
    DistributedModel model(net, comm);
    (model(torch::ones({1, 2})).sum() * comm->rank()).backward();
    EXPECT_TRUE(net->weight.grad().eq(0.5).all().item<bool>());
  });
}

TEST(DistributedModel, AccumulatesWithoutExchange) {
  testing::with_communicator({2, 2}, "hierarchical", {}, [](const CommPtr& comm) {
    nn::Linear net(2, 2);
    testing::fill(*net, 0);
    DistributedModel model(net, comm);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      {
        const auto off = model.no_sync();
        for (int i = 0; i <= comm->rank(); ++i) {  // not equally often
          model(torch::ones({1, 2})).sum().backward();
        }
        EXPECT_TRUE(net->bias.grad().eq(comm->rank() + 1).all().item<bool>());
      }
      model(torch::ones({1, 2})).sum().backward();
      EXPECT_TRUE(net->bias.grad().eq(3.5).all().item<bool>()) << net->bias.grad();
    }
  });
}

TEST(DistributedModel, EvaluationIsLocal) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear net(2, 2);
    DistributedModel model(net, comm, {.overlap = true});
    model(torch::ones({1, 2})).sum().backward();
    if (comm->rank() == 0) {
      const torch::NoGradGuard no_grad;
      (void)model(torch::ones({1, 2}));
    } else {
      model.eval();
      EXPECT_FALSE(net->is_training());
      (void)model(torch::ones({1, 2}));
      model.train();
      EXPECT_TRUE(net->is_training());
    }
    model(torch::ones({1, 2})).sum().backward();
    EXPECT_NO_THROW(verify_equal(*comm, net->weight.grad()));
  });
}

TEST(DistributedModel, AddedLayersAreAdopted) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Sequential net = make_net(0);
    DistributedModel model(net, comm);
    model(samples()).sum().backward();
    nn::Linear added(2, 2);
    testing::fill(*added, comm->rank());
    net->push_back(added);
    (model(samples()).sum() * (comm->rank() + 1)).backward();
    EXPECT_NO_THROW(verify_equal(*comm, added->parameters()));
    EXPECT_NO_THROW(verify_equal(*comm, added->weight.grad()));
  });
}

TEST(DistributedModel, GoesOnAfterABackwardThatThrew) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Sequential net = make_net(0);
    DistributedModel model(net, comm, {.overlap = true, .bucket_bytes = 1});
    auto x = samples();
    x.requires_grad_(true);
    x.register_hook([](const torch::Tensor& /*gradient*/) -> torch::Tensor {
      throw std::runtime_error("on purpose");
    });
    EXPECT_THROW(model(x).sum().backward(), std::runtime_error);
    net->zero_grad();
    (model(samples()).sum() * comm->rank()).backward();
    nn::Sequential alone = make_net(0);
    (alone->forward(samples()).sum() * 0.5).backward();
    for (std::size_t p = 0; p < net->parameters().size(); ++p) {
      EXPECT_TRUE(torch::allclose(net->parameters()[p].grad(), alone->parameters()[p].grad()));
    }
  });
}

TEST(DistributedModel, TakesSharedPointersAndModulesWithSeveralArguments) {
  struct Sum : nn::Module {
    Sum() : linear(register_module("linear", nn::Linear(2, 1))) {}
    std::pair<torch::Tensor, int> forward(const torch::Tensor& a, const torch::Tensor& b) {
      return {linear(a + b), 7};
    }
    nn::Linear linear;
  };
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    DistributedModel model(std::make_shared<Sum>(), comm);
    const auto [y, seven] = model(torch::ones({1, 2}), torch::ones({1, 2}));
    EXPECT_EQ(seven, 7);
    (y.sum() * comm->rank()).backward();
    EXPECT_TRUE(model->linear->weight.grad().eq(1).all().item<bool>());
    EXPECT_EQ(model.parameters().size(), 2U);
  });
}

TEST(DistributedModel, RefusesWhatItCannotDo) {
  testing::with_communicator({1}, "flat", {}, [](const CommPtr& comm) {
    EXPECT_THROW(DistributedModel(nn::Linear(2, 2), nullptr), InvalidArgument);
    EXPECT_THROW(DistributedModel(nn::Linear(nullptr), comm), InvalidArgument);
    EXPECT_THROW(DistributedModel(nn::Linear(2, 2), comm, {.bucket_bytes = -1}), InvalidArgument);
  });
}

TEST(DistributedModel, FreezingOnOneRankNamesTheParameterOnAllRanks) {
  for (const char* name : {"naive", "flat", "hierarchical"}) {
    for (const bool overlap : {false, true}) {
      for (const int odd : {0, 1}) {
        const auto errors =
            testing::errors_with_communicator({2, 1}, name, [&](const CommPtr& comm) {
              nn::Sequential net = make_net(0);
              DistributedModel model(net, comm, {.overlap = overlap});
              model(samples()).sum().backward();
              net->zero_grad();
              if (comm->rank() == odd) net->parameters()[1].set_requires_grad(false);
              model(samples()).sum().backward();
              model(samples()).sum().backward();
            });
        for (const std::string& error : errors) {
          EXPECT_THAT(error, ContainsRegex("rank " + std::to_string(odd) +
                                           "[^,]* calls all_gather of uint8 \\(the training "
                                           "state, now with 'parameter 0.bias [^']* frozen'\\)"))
              << name << overlap;
        }
      }
    }
  }
}

TEST(DistributedModel, OnADeadGroupEveryCallThrowsTheFirstError) {
  for (const char* name : {"naive", "flat"}) {
    for (const bool overlap : {false, true}) {
      testing::with_communicator({2, 1}, name, {}, [&](const CommPtr& comm) {
        nn::Sequential net = make_net(0);
        DistributedModel model(net, comm, {.overlap = overlap});
        const auto error_of_step = [&] {
          net->zero_grad();
          try {
            model(samples()).sum().backward();
            return std::string();
          } catch (const MismatchError& error) {
            return std::string(error.what());
          }
        };
        EXPECT_EQ(error_of_step(), "");
        std::string first;
        if (comm->rank() == 1) {
          try {
            comm->barrier();
          } catch (const MismatchError& error) {
            first = error.what();
          }
        } else {
          first = error_of_step();
        }
        EXPECT_NE(first, "");
        for (int again = 0; again < 3; ++again) EXPECT_EQ(error_of_step(), first) << name;
      });
    }
  }
}

TEST(DistributedModel, DifferentModelsAreAMismatchOnAllRanks) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    DistributedModel model(nn::Linear(2, comm->rank() + 1), comm);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("ranks do not train the same model"));
  }
}

}  // namespace
}  // namespace chainmail
