// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/functions.h>

#include <string>

#include <torch/torch.h>

#include <chainmail/error.h>

#include "plugin/nn/graph_collectives.h"

namespace chainmail::functions {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Autograd looks at a function's arguments before the function does.
void require_defined(const at::Tensor& x, const char* function) {
  if (!x.defined()) throw InvalidArgument(std::string(function) + ": the tensor is undefined");
}

struct AllReduceSum : torch::autograd::Function<AllReduceSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::shared_ptr<Communicator>& communicator) {
    internal::save_communicator(context, communicator);
    return internal::sum_in_graph(*communicator, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {allreduce(internal::saved_communicator(context), gradients[0]), at::Tensor()};
  }
};

struct AllGather : torch::autograd::Function<AllGather> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::shared_ptr<Communicator>& communicator) {
    internal::save_communicator(context, communicator);
    context->saved_data["rank"] = static_cast<std::int64_t>(communicator->rank());
    return internal::gather_in_graph(*communicator, x);
  }

  // Everything is summed, and each rank keeps its own part: the engine's reduce-scatter would move
  // half as much, but takes equal parts only.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto own = static_cast<std::size_t>(context->saved_data["rank"].toInt());
    variable_list flat;
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      begin += r < own ? gradients[r].numel() : 0;
      flat.push_back(gradients[r].reshape({-1}));
    }
    const at::Tensor sum = allreduce(internal::saved_communicator(context), at::cat(flat));
    return {sum.narrow(0, begin, gradients[own].numel()).view(gradients[own].sizes()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor allreduce(const std::shared_ptr<Communicator>& communicator, const at::Tensor& x) {
  internal::require_communicator(communicator, "allreduce");
  require_defined(x, "allreduce");
  return AllReduceSum::apply(x, communicator);
}

std::vector<at::Tensor> allgather(const std::shared_ptr<Communicator>& communicator,
                                  const at::Tensor& x) {
  internal::require_communicator(communicator, "allgather");
  require_defined(x, "allgather");
  return AllGather::apply(x, communicator);
}

}  // namespace chainmail::functions
