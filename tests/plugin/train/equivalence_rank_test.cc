// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// P ranks with batch B end with the parameters of one process with batch P*B on the same samples.

#include <gtest/gtest.h>

#include <functional>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr int kManySteps = 50;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kInputs = 20;
// Sums of float32 gradients in another order, 50 steps of them.
constexpr double kTolerance = 1e-5;

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<torch::Tensor>)>;

std::unique_ptr<optim::Optimizer> make_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(0.05).momentum(0.9));
}

std::unique_ptr<optim::Optimizer> make_adam(std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions(1e-3));
}

nn::Sequential make_model() {
  return nn::Sequential(nn::Linear(kInputs, 33), nn::Tanh(), nn::Linear(33, 17), nn::Tanh(),
                        nn::Linear(17, 10));
}

// The samples of one step for all ranks together; the same on every rank.
struct Samples {
  torch::Tensor x;
  torch::Tensor t;
};

std::vector<Samples> make_samples(std::int64_t ranks) {
  torch::manual_seed(11);
  std::vector<Samples> samples;
  for (int step = 0; step < kManySteps; ++step) {
    samples.push_back({torch::randn({ranks * kBatch, kInputs}),
                       torch::randint(0, 10, {ranks * kBatch}, torch::kLong)});
  }
  return samples;
}

torch::Tensor flat(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : tensors) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

torch::Tensor train_alone(const std::vector<Samples>& samples, const MakeOptimizer& make) {
  torch::manual_seed(5);
  nn::Sequential model = make_model();
  const auto optimizer = make(model->parameters());
  for (const Samples& step : samples) {
    optimizer->zero_grad();
    nn::functional::cross_entropy(model->forward(step.x), step.t).backward();
    optimizer->step();
  }
  return flat(model->parameters());
}

torch::Tensor train_together(const std::vector<Samples>& samples, const MakeOptimizer& make,
                             const std::shared_ptr<Communicator>& comm) {
  // Only rank 0 starts from the weights that count.
  torch::manual_seed(5 + static_cast<std::uint64_t>(comm->rank()));
  nn::Sequential model = make_model();
  const auto optimizer =
      create_multi_node_optimizer(make(model->parameters()), comm, {.model = &model});
  for (const Samples& step : samples) {
    optimizer->zero_grad();
    const auto x = step.x.narrow(0, comm->rank() * kBatch, kBatch);
    const auto t = step.t.narrow(0, comm->rank() * kBatch, kBatch);
    nn::functional::cross_entropy(model->forward(x), t).backward();
    optimizer->step();
  }
  verify_equal(*comm, model->parameters());
  return flat(model->parameters());
}

class Equivalence : public ::testing::TestWithParam<const char*> {};

TEST_P(Equivalence, ManyRanksGiveWhatOneProcessGives) {
  at::set_num_threads(1);
  const auto comm = create_communicator(GetParam());
  const std::vector<Samples> samples = make_samples(comm->size());
  for (const MakeOptimizer& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adam)}) {
    const torch::Tensor together = train_together(samples, make, comm);
    const torch::Tensor alone = train_alone(samples, make);
    const double difference = ((together - alone).norm() / alone.norm()).item<double>();
    EXPECT_LE(difference, kTolerance);
    const double largest = ((together - alone).abs().max() / alone.abs().max()).item<double>();
    EXPECT_LE(largest, kTolerance);
  }
  comm->finalize();
}

TEST_P(Equivalence, WiresOfSixteenBitsKeepRanksEqual) {
  at::set_num_threads(1);
  for (const auto dtype : {c10::kHalf, c10::kBFloat16}) {
    CommunicatorOptions options;
    options.allreduce_grad_dtype = dtype;
    const auto comm = create_communicator(GetParam(), options);
    const std::vector<Samples> samples = make_samples(comm->size());
    const torch::Tensor together = train_together(samples, make_sgd, comm);
    EXPECT_TRUE(together.isfinite().all().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Communicators, Equivalence,
                         ::testing::Values("naive", "flat", "hierarchical", "two_dimensional",
                                           "single_node", "auto"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace chainmail
