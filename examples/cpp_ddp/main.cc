// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Data-parallel training with torch's own gradient Reducer over a process group of Chainmail: each
// rank learns y = f(x) from its own samples, and all ranks keep the same parameters.
//
//   launcher -H localhost:2 -n 2 build/bin/cpp_ddp

#include <gflags/gflags.h>

#include <chainmail/backend.h>
#include <torch/torch.h>

#include <cstdint>
#include <iostream>
#include <vector>

#include "../common/flags.h"
#include "data_parallel.h"

DEFINE_int32(steps, 200, "of training");

namespace {

constexpr std::int64_t kBatch = 32;

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                               torch::nn::Linear(64, 1));
}

// True on every rank when rank 0's parameters are this rank's, bit for bit.
bool are_parameters_equal(const torch::nn::Module& model, c10d::ProcessGroup& group) {
  torch::Tensor is_equal = torch::ones({1});
  for (const torch::Tensor& parameter : model.parameters()) {
    std::vector<torch::Tensor> of_rank_0{parameter.detach().clone()};
    group.broadcast(of_rank_0)->wait();
    if (!torch::equal(of_rank_0[0], parameter)) is_equal.zero_();
  }
  std::vector<torch::Tensor> all{is_equal};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  group.allreduce(all, options)->wait();
  return all[0].item<float>() == 1;
}

int train() {
  const auto group = chainmail::make_process_group();
  torch::manual_seed(static_cast<std::uint64_t>(group->getRank()));  // other samples on each rank
  auto model = make_model();
  DataParallel parallel(*model, group);
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  for (int step = 0; step < FLAGS_steps; ++step) {
    const torch::Tensor x = torch::rand({kBatch, 8});
    const torch::Tensor y = x.sum(1, /*keepdim=*/true).sin();
    model->zero_grad();  // the optimizer's own cannot reset gradients that are views of buckets
    parallel.before_forward();
    const torch::Tensor loss = torch::mse_loss(model->forward(x), y);
    parallel.before_backward(loss);
    loss.backward();
    optimizer.step();
    if (group->getRank() == 0 && step % 50 == 49) {
      std::cout << "step " << step + 1 << ": loss " << loss.item<float>() << std::endl;
    }
  }
  if (!are_parameters_equal(*model, *group)) {
    std::cerr << "rank " << group->getRank() << ": the ranks' parameters differ\n";
    return 1;
  }
  if (group->getRank() == 0) {
    std::cout << "same parameters on " << group->getSize() << " ranks" << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "cpp_ddp",
      .what = "Trains with torch's own gradient Reducer over a process group of Chainmail."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    flags::check_at_least(0, "steps", FLAGS_steps);
    return train();
  });
}
