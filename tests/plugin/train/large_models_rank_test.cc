// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Models that stress the exchange by their shape, 300 small layers and one of 200 MB: overlapped,
// after backward and in a single process they end with the same parameters.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr int kLargeModelSteps = 3;
// Of the largest parameter: float32 sums of up to four ranks in another order; each of the three
// steps starts from what the step before rounded, through 7,072 saturating units. A gradient left
// out or counted twice moves parameters by more than a hundredth.
constexpr double kRelativeTolerance = 1e-5;

torch::Tensor samples(int rank, int step, std::int64_t width) {
  return (torch::arange(2 * width) * 0.37 + rank * 1.3 + step * 0.7)
      .sin()
      .to(torch::kFloat)
      .view({2, width});
}

struct Subject : nn::Module {
  virtual torch::Tensor loss(int rank, int step) = 0;
};

struct ManyLayers final : Subject {
  ManyLayers() {
    for (int i = 0; i < 300; ++i) layers->push_back(nn::Linear(8, 8));
  }
  torch::Tensor loss(int rank, int step) override {
    torch::Tensor x = samples(rank, step, 8);
    for (const auto& layer : *layers) x = x + 0.05 * layer->as<nn::Linear>()->forward(x).tanh();
    return x.square().mean();
  }
  nn::ModuleList layers = register_module("layers", nn::ModuleList());
};

struct OneLargeLayer final : Subject {
  static constexpr std::int64_t kWidth = 7072;  // squared, four bytes each: 200 MB
  torch::Tensor loss(int rank, int step) override {
    return last(large(samples(rank, step, kWidth)).tanh()).square().mean();
  }
  nn::Linear large = register_module("large", nn::Linear(kWidth, kWidth));
  nn::Linear last = register_module("last", nn::Linear(kWidth, 3));
};

using Factory = std::function<std::shared_ptr<Subject>()>;

template <typename Model>
std::shared_ptr<Subject> make() {
  torch::manual_seed(3);
  return std::make_shared<Model>();
}

std::unique_ptr<optim::Optimizer> sgd(Subject& model) {
  return std::make_unique<optim::SGD>(model.parameters(), 0.05);
}

std::vector<torch::Tensor> train_alone(const Factory& factory, int ranks) {
  const auto model = factory();
  const auto optimizer = sgd(*model);
  for (int step = 0; step < kLargeModelSteps; ++step) {
    optimizer->zero_grad();
    for (int rank = 0; rank < ranks; ++rank) (model->loss(rank, step) / ranks).backward();
    optimizer->step();
  }
  return model->parameters();
}

std::vector<torch::Tensor> train_together(const Factory& factory,
                                          const std::shared_ptr<Communicator>& comm,
                                          MultiNodeOptimizerOptions options) {
  const auto model = factory();
  options.model = model;
  const auto optimizer = create_multi_node_optimizer(sgd(*model), comm, options);
  for (int step = 0; step < kLargeModelSteps; ++step) {
    optimizer->zero_grad();
    model->loss(comm->rank(), step).backward();
    optimizer->step();
  }
  verify_equal(*comm, model->parameters());
  return model->parameters();
}

void expect_close(const std::vector<torch::Tensor>& actual,
                  const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = (actual[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(difference, kRelativeTolerance * expected[i].abs().max().item<double>())
        << "parameter " << i;
  }
}

void expect_all_ways_equal(const Factory& factory) {
  at::set_num_threads(1);
  const auto comm = create_communicator("hierarchical");
  const std::vector<torch::Tensor> alone = train_alone(factory, comm->size());
  for (const bool overlaps : {false, true}) {
    SCOPED_TRACE(overlaps ? "overlapped" : "after backward");
    expect_close(train_together(factory, comm, {.overlap = overlaps}), alone);
  }
}

TEST(LargeModels, ThreeHundredLayers) { expect_all_ways_equal(make<ManyLayers>); }

TEST(LargeModels, OneLayerOf200Megabytes) { expect_all_ways_equal(make<OneLargeLayer>); }

}  // namespace
}  // namespace chainmail
