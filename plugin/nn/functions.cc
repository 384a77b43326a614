// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/functions.h>

#include <algorithm>
#include <string>
#include <utility>

#include <torch/torch.h>

#include <chainmail/error.h>

#include "plugin/nn/graph_collectives.h"
#include "plugin/nn/parallel/collectives.h"
#include "plugin/nn/parallel/exchange_node.h"
#include "plugin/nn/parallel/messages.h"

namespace chainmail::functions {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using CommPtr = std::shared_ptr<Communicator>;

// Autograd looks at a function's arguments before the function does.
void require_defined(const at::Tensor& x, const char* function) {
  if (!x.defined()) throw InvalidArgument(std::string(function) + ": the tensor is undefined");
}

struct AllReduceSum : torch::autograd::Function<AllReduceSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const CommPtr& communicator) {
    internal::save_communicator(context, communicator);
    return internal::sum_in_graph(*communicator, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gradient = internal::dense_gradient(gradients[0]);
    return {allreduce(internal::saved_communicator(context), gradient), at::Tensor()};
  }
};

// Each is the other's adjoint.
struct AllGather : torch::autograd::Function<AllGather> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const CommPtr& communicator) {
    internal::save_communicator(context, communicator);
    return internal::gather_in_graph(*communicator, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list dense;
    for (const at::Tensor& gradient : gradients) {
      dense.push_back(internal::dense_gradient(gradient));
    }
    return {reduce_scatter(internal::saved_communicator(context), dense), at::Tensor()};
  }
};

struct ReduceScatter : torch::autograd::Function<ReduceScatter> {
  static at::Tensor forward(AutogradContext* context, at::ArrayRef<at::Tensor> parts,
                            const CommPtr& communicator) {
    internal::save_communicator(context, communicator);
    return internal::scatter_sum_in_graph(*communicator, parts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list result =
        allgather(internal::saved_communicator(context), internal::dense_gradient(gradients[0]));
    result.emplace_back();
    return result;
  }
};

}  // namespace

at::Tensor allreduce(const CommPtr& communicator, const at::Tensor& x) {
  internal::require_communicator(communicator, "allreduce");
  require_defined(x, "allreduce");
  return AllReduceSum::apply(x, communicator);
}

std::vector<at::Tensor> allgather(const CommPtr& communicator, const at::Tensor& x) {
  internal::require_communicator(communicator, "allgather");
  require_defined(x, "allgather");
  return AllGather::apply(x, communicator);
}

at::Tensor reduce_scatter(const CommPtr& communicator, at::ArrayRef<at::Tensor> xs) {
  internal::require_communicator(communicator, "reduce_scatter");
  for (const at::Tensor& x : xs) require_defined(x, "reduce_scatter");
  return ReduceScatter::apply(xs, communicator);
}

at::Tensor send(at::ArrayRef<at::Tensor> x, const CommPtr& communicator, int rank, int tag) {
  return internal::send_message(communicator, {}, x, rank, tag).token;
}

at::Tensor recv(const CommPtr& communicator, int rank, const at::Tensor& delegate, int tag) {
  return internal::only_tensor(recv_list(communicator, rank, delegate, tag));
}

std::vector<at::Tensor> recv_list(const CommPtr& communicator, int rank, const at::Tensor& delegate,
                                  int tag) {
  internal::Exchanged exchanged = internal::receive_message(communicator, delegate, rank, tag);
  const auto has_gradient = [](const at::Tensor& x) { return x.requires_grad(); };
  if (std::ranges::any_of(exchanged.results, has_gradient)) return std::move(exchanged.results);
  return internal::connect_to(exchanged.token, exchanged.results);  // it leads to the delegate
}

at::Tensor bcast(const CommPtr& communicator, const at::Tensor& x, int root) {
  return internal::bcast_in_graph(communicator, {}, x, root).results.front();
}

std::vector<at::Tensor> gather(const CommPtr& communicator, const at::Tensor& x, int root) {
  internal::Exchanged exchanged = internal::gather_to_root_in_graph(communicator, {}, x, root);
  if (communicator->rank() != root) return {exchanged.token};
  return std::move(exchanged.results);
}

at::Tensor scatter(const CommPtr& communicator, at::ArrayRef<at::Tensor> xs, int root) {
  return internal::scatter_in_graph(communicator, {}, xs, root).results.front();
}

std::vector<at::Tensor> alltoall(const CommPtr& communicator, at::ArrayRef<at::Tensor> xs) {
  return internal::alltoall_in_graph(communicator, {}, xs).results;
}

at::Tensor pseudo_connect(const at::Tensor& delegate, const at::Tensor& x) {
  require_defined(x, "pseudo_connect");
  return pseudo_connect(delegate, at::ArrayRef<at::Tensor>(x)).front();
}

std::vector<at::Tensor> pseudo_connect(const at::Tensor& delegate, at::ArrayRef<at::Tensor> xs) {
  require_defined(delegate, "pseudo_connect");
  for (const at::Tensor& x : xs) require_defined(x, "pseudo_connect");
  return internal::connect_to(delegate, xs.vec());
}

}  // namespace chainmail::functions
