// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every way to exchange gradients against one process that computes the mean of all ranks' losses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using ::testing::AllOf;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

constexpr int kSteps = 4;

// A model whose loss depends on rank and step alone.
struct Subject : nn::Module {
  virtual torch::Tensor loss(int rank, int step) = 0;
};

torch::Tensor input(int rank, int step, std::vector<std::int64_t> sizes) {
  const std::int64_t count = c10::multiply_integers(sizes);
  return (torch::arange(count) * 0.37 + rank * 1.3 + step * 0.7)
      .sin()
      .to(torch::kFloat)
      .view(sizes);
}

struct SharedWeights final : Subject {
  torch::Tensor loss(int rank, int step) override {
    return (b(a(a(input(rank, step, {3, 5})))).tanh() * a->bias.sum()).sum();
  }
  nn::Linear a = register_module("a", nn::Linear(5, 5));
  nn::Linear b = register_module("b", nn::Linear(5, 2));
};

// Each rank and step takes one of two branches; `spare` is never used.
struct Branches final : Subject {
  torch::Tensor loss(int rank, int step) override {
    nn::Linear& branch = (rank + step) % 2 == 0 ? even : odd;
    return branch(first(input(rank, step, {2, 4}))).square().sum();
  }
  nn::Linear first = register_module("first", nn::Linear(4, 4));
  nn::Linear even = register_module("even", nn::Linear(4, 3));
  nn::Linear odd = register_module("odd", nn::Linear(4, 3));
  nn::Linear spare = register_module("spare", nn::Linear(4, 3));
};

struct SparseEmbedding final : Subject {
  torch::Tensor loss(int rank, int step) override {
    const auto words = torch::tensor({rank, (step * 3 + rank) % 7, 6}, torch::kLong);
    return (out(table(words)) * input(rank, step, {3, 2})).sum();
  }
  nn::Embedding table =
      register_module("table", nn::Embedding(nn::EmbeddingOptions(7, 3).sparse(true)));
  nn::Linear out = register_module("out", nn::Linear(3, 2));
};

struct ManySmallLayers final : Subject {
  ManySmallLayers() {
    for (int i = 0; i < 100; ++i) layers->push_back(nn::Linear(4, 4));
  }
  torch::Tensor loss(int rank, int step) override {
    torch::Tensor x = input(rank, step, {2, 4});
    for (const auto& layer : *layers) x = x + 0.1 * layer->as<nn::Linear>()->forward(x).tanh();
    return x.square().sum();
  }
  nn::ModuleList layers = register_module("layers", nn::ModuleList());
};

// Two dtypes, a frozen parameter, one that is channels_last.
struct MixedKinds final : Subject {
  MixedKinds() {
    frozen->weight.requires_grad_(false);
    const torch::NoGradGuard no_grad;
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  torch::Tensor loss(int rank, int step) override {
    const torch::Tensor x = conv(input(rank, step, {1, 2, 4, 4})).mean({2, 3});
    return (frozen(x).to(torch::kDouble) * precise).sum();
  }
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 3, 3)));
  nn::Linear frozen = register_module("frozen", nn::Linear(3, 4));
  torch::Tensor precise = register_parameter("precise", torch::ones({1, 4}, torch::kDouble));
};

using Factory = std::function<std::shared_ptr<Subject>()>;

template <typename Model>
std::shared_ptr<Subject> make() {
  auto model = std::make_shared<Model>();
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& parameter : model->parameters()) {
    parameter.copy_(
        (torch::arange(parameter.numel()) * 0.9 + phase++).cos().view(parameter.sizes()) * 0.5);
  }
  return model;
}

struct Named {
  const char* name;
  Factory make;
};

std::vector<Named> subjects() {
  return {{"shared weights", make<SharedWeights>},
          {"branches", make<Branches>},
          {"sparse embedding", make<SparseEmbedding>},
          {"many small layers", make<ManySmallLayers>},
          {"mixed kinds", make<MixedKinds>}};
}

std::unique_ptr<optim::Optimizer> sgd(Subject& model) {
  return std::make_unique<optim::SGD>(model.parameters(), optim::SGDOptions(0.05).momentum(0.9));
}

// What one process gets from the mean loss of `ranks` ranks. `micro` losses add up per step.
std::vector<torch::Tensor> single_process(const Factory& factory, int ranks, int micro) {
  const auto model = factory();
  const auto optimizer = sgd(*model);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (int rank = 0; rank < ranks; ++rank) {
      for (int part = 0; part < micro; ++part) {
        (model->loss(rank, step * micro + part) / ranks).backward();
      }
    }
    optimizer->step();
  }
  return model->parameters();
}

void expect_close(const std::vector<torch::Tensor>& actual,
                  const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-5, 1e-6))
        << "parameter " << i << " differs by "
        << (actual[i] - expected[i]).abs().max().item<double>();
  }
}

struct Way {
  const char* name;
  const char* communicator;
  MultiNodeOptimizerOptions options;
};

std::vector<Way> ways() {
  return {{"naive", "naive", {}},
          {"packed", "hierarchical", {.overlap = false}},
          {"overlapped", "two_dimensional", {.overlap = true, .bucket_bytes = 100}},
          {"a bucket per tensor", "flat", {.overlap = true, .bucket_bytes = 1}},
          {"first one small",
           "hierarchical",
           {.overlap = true, .bucket_bytes = 400, .first_bucket_bytes = 50}}};
}

TEST(GradientExchange, EveryWayGivesWhatOneProcessGives) {
  for (const Named& subject : subjects()) {
    const auto expected = single_process(subject.make, 3, 1);
    for (const Way& way : ways()) {
      SCOPED_TRACE(std::string(subject.name) + ", " + way.name);
      testing::with_communicator({2, 1}, way.communicator, {}, [&](const CommPtr& comm) {
        const auto model = subject.make();
        MultiNodeOptimizerOptions options = way.options;
        options.model = model;
        auto optimizer = create_multi_node_optimizer(sgd(*model), comm, options);
        for (int step = 0; step < kSteps; ++step) {
          optimizer->zero_grad(step % 2 == 0);
          model->loss(comm->rank(), step).backward();
          EXPECT_TRUE(optimizer->step().is_applied);
        }
        expect_close(model->parameters(), expected);
        EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
      });
    }
  }
}

TEST(GradientExchange, SeveralBackwardsOfAStepAddUp) {
  for (const Named& subject :
       {Named{"shared weights", make<SharedWeights>}, Named{"branches", make<Branches>},
        Named{"sparse embedding", make<SparseEmbedding>}}) {
    const auto expected = single_process(subject.make, 2, 3);
    for (const Way& way : ways()) {
      for (const bool uses_no_sync : {false, true}) {
        SCOPED_TRACE(std::string(subject.name) + ", " + way.name +
                     (uses_no_sync ? ", no_sync" : ""));
        testing::with_communicator({1, 1}, way.communicator, {}, [&](const CommPtr& comm) {
          const auto model = subject.make();
          MultiNodeOptimizerOptions options = way.options;
          options.model = model;
          auto optimizer = create_multi_node_optimizer(sgd(*model), comm, options);
          for (int step = 0; step < kSteps; ++step) {
            optimizer->zero_grad();
            for (int part = 0; part < 3; ++part) {
              const torch::Tensor loss = model->loss(comm->rank(), step * 3 + part);
              if (uses_no_sync && part < 2) {
                const auto guard = optimizer->no_sync();
                loss.backward();
              } else {
                loss.backward();
              }
            }
            optimizer->step();
          }
          expect_close(model->parameters(), expected);
          EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
        });
      }
    }
  }
}

TEST(GradientExchange, BackwardLeavesMeansInTheGroupsMemory) {
  for (const bool overlaps : {false, true}) {
    testing::with_communicator({2}, "flat", {}, [&](const CommPtr& comm) {
      nn::Linear model(3, 2);
      auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::SGD>(model->parameters(), 1.0), comm,
                                      {.model = &model, .overlap = overlaps});
      std::vector<const void*> places;
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad(step != 1);
        (model->forward(torch::ones({1, 3})).sum() * comm->rank()).backward();
        EXPECT_TRUE(model->weight.grad().eq(0.5).all().item<bool>());
        EXPECT_TRUE(model->bias.grad().eq(0.5).all().item<bool>());
        optimizer->step();
        places.push_back(model->weight.grad().const_data_ptr());
      }
      EXPECT_EQ(places[1], places[2]);  // the buckets are rebuilt once, after the first step
      EXPECT_GE(optimizer->gradient_bytes(), 8 * sizeof(float));
      EXPECT_LT(optimizer->gradient_bytes(), 1024U);
    });
  }
}

// The marks that say who has a gradient travel with the gradients, rounded as they are.
TEST(GradientExchange, HugeGradientsOnA16BitWireDoNotHideThatTheyAreThere) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  testing::with_communicator({1, 1}, "flat", options, [&](const CommPtr& comm) {
    nn::Linear model(3, 2);
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(model->parameters(), 0.0), comm, {.model = &model});
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      (model->forward(torch::ones({1, 3})).sum() * 1e30).backward();
      optimizer->step();
      for (const torch::Tensor& parameter : model->parameters()) {
        ASSERT_TRUE(parameter.grad().defined()) << "step " << step;
        EXPECT_TRUE(torch::allclose(parameter.grad(), torch::full_like(parameter, 1e30), 1e-3));
      }
    }
  });
}

TEST(GradientExchange, ARankWithoutABackwardMeetsTheOthersInItsStep) {
  for (const Way& way : ways()) {
    testing::with_communicator({1, 1}, way.communicator, {}, [&](const CommPtr& comm) {
      nn::Linear model(3, 2);
      MultiNodeOptimizerOptions options = way.options;
      options.model = &model;
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, options);
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        if (comm->rank() != step % 2) {
          model->forward(torch::ones({1, 3})).sum().backward();
        }
        optimizer->step();
        EXPECT_TRUE(model->weight.grad().eq(0.5).all().item<bool>()) << way.name;
      }
      EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
    });
  }
}

TEST(GradientExchange, RanksAtDifferentExchangesAreAMismatch) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      for (int twice = 0; twice < (comm->rank() == 0 && step == 1 ? 2 : 1); ++twice) {
        model->forward(torch::ones({1, 3})).sum().backward();
      }
      optimizer->step();
    }
    comm->barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("of step 1, exchange 2"), HasSubstr("of step 2, exchange 1")));
  }
}

TEST(GradientExchange, ClipsTheMeanByItsGlobalNorm) {
  for (const Way& way : ways()) {
    testing::with_communicator({1, 1}, way.communicator, {}, [&](const CommPtr& comm) {
      const auto weight = torch::zeros({2}, torch::requires_grad());
      const auto bias = torch::zeros({1}, torch::requires_grad());
      MultiNodeOptimizerOptions options = way.options;
      options.max_grad_norm = 1.5;
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(std::vector<torch::Tensor>{weight, bias}, 1.0), comm,
          options);
      // The mean is (2, 1, 2), whose norm is 3; the ranks' own norms are others.
      weight.mutable_grad() = torch::tensor({4.0F, 2.0F}) * comm->rank();
      bias.mutable_grad() = torch::full({1}, 4.0F * static_cast<float>(comm->rank()));
      const StepResult result = optimizer->step();
      EXPECT_TRUE(result.is_applied);
      EXPECT_NEAR(result.grad_norm, 3, 1e-5) << way.name;
      EXPECT_TRUE(torch::allclose(weight, torch::tensor({-1.0F, -0.5F}))) << way.name;
      EXPECT_TRUE(torch::allclose(bias, torch::tensor({-1.0F}))) << way.name;
    });
  }
}

TEST(GradientExchange, GradientsThatAreNotFiniteAreSkippedByAllAlike) {
  for (const Way& way : ways()) {
    testing::with_communicator({2, 1}, way.communicator, {}, [&](const CommPtr& comm) {
      nn::Linear model(3, 2);
      MultiNodeOptimizerOptions options = way.options;
      options.model = &model;
      options.skip_nonfinite = true;
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::Adam>(model->parameters(), 1.0), comm, options);
      for (int step = 0; step < 3; ++step) {
        const auto before = model->weight.detach().clone();
        optimizer->zero_grad();
        const double factor = step == 1 && comm->rank() == 2 ? INFINITY : 1;
        (model->forward(torch::ones({1, 3})).sum() * factor).backward();
        EXPECT_EQ(optimizer->step().is_applied, step != 1);
        EXPECT_EQ(torch::equal(before, model->weight), step == 1);
      }
      EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
    });
  }
}

TEST(GradientExchange, AnExceptionInBackwardLeavesTheExchangeWhole) {
  struct Fails : torch::autograd::Function<Fails> {
    static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                                 const torch::Tensor& x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                   const torch::autograd::variable_list& /*g*/) {
      throw std::runtime_error("as wanted");
    }
  };
  testing::with_communicator({1, 1}, "hierarchical", {}, [&](const CommPtr& comm) {
    nn::Linear first(3, 3);
    nn::Linear second(3, 2);
    nn::Sequential model(first, second);
    auto optimizer =
        create_multi_node_optimizer(std::make_unique<optim::SGD>(model->parameters(), 1.0), comm,
                                    {.model = &model, .overlap = true, .bucket_bytes = 1});
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      const torch::Tensor x = first(torch::ones({1, 3}));
      if (step == 2) {  // on all ranks, after `second` has its gradients
        EXPECT_THROW(second(Fails::apply(x)).sum().backward(), std::runtime_error);
        continue;
      }
      (second(x).sum() * (comm->rank() + 1)).backward();
      EXPECT_TRUE(second->bias.grad().eq(1.5).all().item<bool>());
      optimizer->step();
    }
    EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
  });
}

}  // namespace
}  // namespace chainmail
