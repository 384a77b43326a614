// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The examples of docs/model_parallel.md, each where it can stand (examples_test.py). On 3 ranks.

#include <chainmail/chainmail.h>
#include <torch/torch.h>

#include <cstdio>
#include <memory>
#include <tuple>

namespace {

namespace functions = chainmail::functions;

using Comm = std::shared_ptr<chainmail::Communicator>;

// Merges two tensors.
struct HeadImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) { return a + b; }
};
TORCH_MODULE(Head);

torch::Tensor criterion(const torch::Tensor& y, const torch::Tensor& t) {
  return torch::nll_loss(y, t);
}

void two_halves(const Comm& comm) {
  torch::nn::Linear front(4, 5);
  torch::nn::Linear back(5, 3);
  torch::optim::SGD optimizer((comm->rank() == 0 ? front : back)->parameters(), 0.1);
  const torch::Tensor x = torch::ones({6, 4});
  const torch::Tensor t = torch::zeros({6}, torch::kLong);
#include "models_that_span_ranks_1.inc"
}

void links(const Comm& comm) {
  torch::nn::Linear front(4, 5);
  torch::nn::Linear middle(5, 3);
  Head head;
  const torch::Tensor x = torch::ones({6, 4});
  const torch::Tensor t = torch::zeros({6}, torch::kLong);
#include "multinodechainlist_1.inc"
}

// What the first and the last rank of the sequence have.
void end_of_sequence(const Comm& comm, const chainmail::NStepRanks& ranks, const torch::Tensor& x) {
  chainmail::Chain chain(comm);
  auto rnn = chainmail::create_multi_node_n_step_rnn(torch::nn::LSTM(16, 32), chain, ranks);
  std::ignore = rnn->forward(x);
  chain.backward();
}

void sequences(const Comm& comm) {
  const torch::Tensor x = torch::ones({2, 3, 16});
  if (comm->rank() == 0) return end_of_sequence(comm, {.rank_out = 1}, x);
  if (comm->rank() == 2) return end_of_sequence(comm, {.rank_in = 1}, x);
#include "sequences_over_several_ranks_1.inc"
}

void pipelines(const Comm& comm) {
  torch::nn::Linear stage(4, 4);
  torch::optim::SGD optimizer(stage->parameters(), 0.1);
  const torch::Tensor x = torch::ones({16, 4});
  const torch::Tensor t = torch::zeros({16}, torch::kLong);
#include "pipelines_1.inc"
  {
    auto optimizer = chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(stage->parameters(), 0.1), comm->split(comm->rank(), 0),
        {.model = &stage});
#include "pipelines_2.inc"
  }
#include "pipelines_3.inc"
}

void copies(const Comm& comm) {
  const int stages = comm->size();
#include "copies_of_a_model_1.inc"
}

void cut_layers(const Comm& comm) {
  torch::Tensor y;
  const torch::Tensor x = torch::ones({2, 512});
#include "layers_that_are_cut_over_the_ranks_1.inc"
}

void ported(const Comm& comm) {
  torch::nn::Linear front(4, 5);
  const torch::Tensor x = torch::ones({6, 4});
  if (comm->rank() == 1) {
    const torch::Tensor got = functions::recv(comm, 0);
    std::ignore = functions::send(got.detach(), comm, 0);
    got.sum().backward();
    return;
  }
  const torch::Tensor l = torch::zeros({});
#include "ported_programs_1.inc"
}

}  // namespace

int main() {
  const Comm comm = chainmail::create_communicator();
  const Comm pair = comm->split(comm->rank() / 2, comm->rank());
  if (comm->size() != 3) return 2;
  for (const auto example : {links, sequences, pipelines, copies, cut_layers}) example(comm);
  if (pair->size() == 2) {
    for (const auto example : {two_halves, ported}) example(pair);
  }
  std::printf("examples done on rank %d\n", comm->rank());
}
