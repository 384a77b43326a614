// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The examples of docs/sharded_modules.md, each where it can stand (examples_test.py).

#include <chainmail/chainmail.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <tuple>

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) : linear(torch::nn::LinearOptions(width, width)) {
    register_module("linear", linear);
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(linear->forward(x)); }

  torch::nn::Linear linear;
};
TORCH_MODULE(Block);

void assigned(const std::shared_ptr<chainmail::Communicator>& comm, const torch::Tensor& x) {
#include "sharded_modules_2.inc"
  std::ignore = PairImpl(comm).b->forward(x);
}

}  // namespace

int main() {
  const torch::Tensor x = torch::ones({2, 1024});
  const torch::Tensor t = torch::zeros({2}, torch::kLong);
#include "sharded_modules_1.inc"
  assigned(comm, x);
#include "optimizers_1.inc"
  std::printf("examples done on rank %d\n", comm->rank());
}
