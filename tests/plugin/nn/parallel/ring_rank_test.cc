// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model over all ranks and back to the first, in processes: with a delegate as in ChainerMN's own
// test, with a Chain, and with a MultiNodeChainList, against one process.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

using testing::comm;

constexpr int kRingSteps = 5;

torch::nn::Linear make_layer(int rank) {
  torch::manual_seed(static_cast<std::uint64_t>(20 + rank));
  return torch::nn::Linear(10, 10);
}

torch::Tensor make_input(int step) {
  torch::manual_seed(static_cast<std::uint64_t>(40 + step));
  return torch::randn({4, 10});
}

// All layers of the ring in this process: rank 0's is used again at its end.
class Ring : public ::testing::Test {
 protected:
  Ring() {
    for (int rank = 0; rank < comm()->size(); ++rank) alone_.push_back(make_layer(rank));
    std::vector<torch::Tensor> parameters;
    for (const auto& layer : alone_) {
      for (const auto& parameter : layer->parameters()) parameters.push_back(parameter);
    }
    torch::optim::SGD optimizer(parameters, 0.1);
    for (int step = 0; step < kRingSteps; ++step) {
      optimizer.zero_grad();
      torch::Tensor h = make_input(step);
      for (auto& layer : alone_) h = layer->forward(h).tanh();
      const auto loss = alone_[0]->forward(h).pow(2).mean();
      loss.backward();
      optimizer.step();
      losses_.push_back(loss.item<double>());
    }
  }

  // `step_of` returns the loss on rank 0, after backward.
  void train(torch::nn::Linear layer,
             const std::function<torch::Tensor(const torch::Tensor& x)>& step_of) {
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    for (int step = 0; step < kRingSteps; ++step) {
      optimizer.zero_grad();
      const auto loss = step_of(make_input(step));
      if (comm()->rank() == 0) {
        EXPECT_NEAR(loss.item<double>(), losses_[static_cast<std::size_t>(step)], 1e-6);
      }
      optimizer.step();
    }
    const auto& expected = alone_[static_cast<std::size_t>(comm()->rank())];
    EXPECT_TRUE(torch::allclose(layer->weight, expected->weight, 1e-6, 1e-6));
    EXPECT_TRUE(torch::allclose(layer->bias, expected->bias, 1e-6, 1e-6));
  }

  const int next_ = (comm()->rank() + 1) % comm()->size();
  const int before_ = (comm()->rank() + comm()->size() - 1) % comm()->size();

 private:
  std::vector<torch::nn::Linear> alone_;
  std::vector<double> losses_;
};

TEST_F(Ring, WithDelegates) {
  if (comm()->size() == 1) return;
  auto layer = make_layer(comm()->rank());
  train(layer, [&](const torch::Tensor& x) {
    if (comm()->rank() == 0) {
      const auto delegate = functions::send(layer->forward(x).tanh(), comm(), next_);
      const auto h = functions::recv(comm(), before_, delegate);
      auto loss = layer->forward(h).pow(2).mean();
      loss.backward();
      return loss;
    }
    const auto h = functions::recv(comm(), before_);
    functions::send(layer->forward(h).tanh(), comm(), next_).backward();
    return torch::Tensor();
  });
}

TEST_F(Ring, WithAChain) {
  if (comm()->size() == 1) return;
  auto layer = make_layer(comm()->rank());
  Chain chain(comm());
  train(layer, [&](const torch::Tensor& x) {
    const bool is_first = comm()->rank() == 0;
    chain.send(layer->forward(is_first ? x : chain.recv(before_)).tanh(), next_);
    if (!is_first) {
      chain.backward();
      return torch::Tensor();
    }
    auto loss = layer->forward(chain.recv(before_)).pow(2).mean();
    chain.backward(loss);
    return loss;
  });
}

TEST_F(Ring, WithAChainList) {
  auto layer = make_layer(comm()->rank());
  MultiNodeChainList list(comm());
  const torch::nn::Sequential link(layer, torch::nn::Tanh());
  if (comm()->rank() == 0) {
    list->add_link(link, kInput, next_).add_link(layer, before_, kOutput);
  } else {
    list->add_link(link, before_, next_);
  }
  train(layer, [&](const torch::Tensor& x) {
    const auto loss = list->forward(x).pow(2).mean();
    if (comm()->rank() == 0) {
      list->backward(loss);
    } else {
      list->backward();
    }
    return loss;
  });
}

}  // namespace
}  // namespace chainmail
