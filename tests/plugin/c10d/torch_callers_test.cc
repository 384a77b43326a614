// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch's own callers of process groups over ours: the gradient Reducer, functional collectives,
// operators by name.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/Functional.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr int kSteps = 5;

torch::nn::Sequential make_model() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 33), torch::nn::ReLU(),
                               torch::nn::Linear(33, 3));
}

// The samples of one step for all ranks.
at::Tensor samples(int step, std::int64_t ranks) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  return torch::randn({ranks * kBatch, 6});
}

std::vector<at::Tensor> train_alone(std::int64_t ranks) {
  auto model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < kSteps; ++step) {
    model->zero_grad();
    model->forward(samples(step, ranks)).square().mean().backward();
    optimizer.step();
  }
  return model->parameters();
}

TEST(Reducer, TrainsAsOneProcessWould) {
  const auto group = make_group();
  auto model = make_model();
  std::vector<at::Tensor> parameters = model->parameters();
  const std::vector<bool> is_sparse(parameters.size(), false);
  // Small buckets, so that there are several and their order is rebuilt after the first step.
  auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {256, 512}, is_sparse));
  std::reverse(buckets.begin(), buckets.end());
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  auto reducer = std::make_shared<c10d::Reducer>(
      parameters, buckets, group, is_sparse, /*bucket_bytes_cap=*/512,
      /*find_unused_parameters=*/true, /*gradient_as_bucket_view=*/true,
      std::unordered_map<std::size_t, std::string>{}, /*first_bucket_bytes_cap=*/256,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
  torch::optim::SGD optimizer(parameters, 0.1);
  for (int step = 0; step < kSteps; ++step) {
    model->zero_grad();
    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
    const at::Tensor loss =
        model->forward(samples(step, job().size).narrow(0, job().rank * kBatch, kBatch))
            .square()
            .mean();
    reducer->prepare_for_backward({loss});
    loss.backward();
    optimizer.step();
  }
  const auto alone = train_alone(job().size);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(at::allclose(parameters[i], alone[i], 1e-5, 1e-6)) << "parameter " << i;
    // Bit for bit the same on all ranks.
    std::vector<at::Tensor> mine{parameters[i].detach().clone()};
    group->broadcast(mine)->wait();
    EXPECT_TRUE(at::equal(mine[0], parameters[i])) << "parameter " << i;
  }
}

TEST(Functional, CollectivesFindTheGroupByName) {
  const auto group = make_group();
  const std::string name = group->getGroupName();
  const float ranks = static_cast<float>(job().size);
  const at::Tensor input = torch::full({job().size, 2}, job().rank + 1.0);
  at::Tensor sum = c10d::all_reduce(input, "sum", name);
  sum = c10d::wait_tensor(sum);
  EXPECT_TRUE(at::equal(sum, torch::full({job().size, 2}, ranks * (ranks + 1) / 2)));
  at::Tensor all = c10d::wait_tensor(c10d::all_gather_into_tensor(input, job().size, name));
  EXPECT_EQ(all.size(0), job().size * job().size);
  EXPECT_EQ(all[-1][0].item<float>(), ranks);
  at::Tensor part = c10d::wait_tensor(c10d::reduce_scatter_tensor(input, "avg", job().size, name));
  EXPECT_TRUE(at::allclose(part, torch::full({1, 2}, (ranks + 1) / 2)));
}

at::Tensor call(const std::string& name, const at::Tensor& tensor, const std::string& op,
                const std::string& group) {
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(("chainmail::" + name).c_str(), "");
  std::vector<c10::IValue> stack{tensor, op, group};
  handle.callBoxed(stack);
  return stack.empty() ? at::Tensor() : stack[0].toTensor();
}

TEST(Operators, EveryNameReduces) {
  const auto group = make_group();
  const float ranks = static_cast<float>(job().size);
  for (const std::string name :
       {"all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce", "fp16_all_reduce"}) {
    at::Tensor tensor = torch::full({3, 5}, job().rank + 1.0);
    const at::Tensor result = call(name, tensor, "sum", group->getGroupName());
    EXPECT_TRUE(at::equal(result, torch::full({3, 5}, ranks * (ranks + 1) / 2))) << name;
    EXPECT_TRUE(at::equal(tensor, torch::full({3, 5}, job().rank + 1.0))) << name;
    call(name + "_", tensor, "avg", group->getGroupName());
    EXPECT_TRUE(at::allclose(tensor, torch::full({3, 5}, (ranks + 1) / 2))) << name;
  }
}

TEST(Operators, MetaTensorsKeepTheirShape) {
  const at::Tensor meta = torch::empty({3, 4}, at::TensorOptions().device(at::kMeta));
  EXPECT_EQ(call("fp16_all_reduce", meta, "sum", "no such group").sizes(), meta.sizes());
}

TEST(Operators, SayWhatIsWrong) {
  const auto group = make_group();
  EXPECT_THROW(call("all_reduce", torch::ones({1}), "sum", "no such group"), c10::Error);
  EXPECT_THROW(call("all_reduce", torch::ones({1}), "mean", group->getGroupName()), std::exception);
}

}  // namespace
}  // namespace chainmail::internal
