// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/chain.h>

#include <exception>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/autograd.h>

#include <chainmail/error.h>

#include "plugin/nn/parallel/collectives.h"
#include "plugin/nn/parallel/messages.h"
#include "plugin/train/communicator/family.h"

namespace chainmail {

namespace {

// Takes the token over and returns the results.
std::vector<at::Tensor> step(at::Tensor& token, internal::Exchanged exchanged) {
  token = std::move(exchanged.token);
  return std::move(exchanged.results);
}

bool leads_on(const at::Tensor& token) {
  return token.requires_grad() && !internal::is_spent(token);
}

at::Tensor zero() { return at::zeros({}, c10::TensorOptions(c10::kFloat)); }

}  // namespace

Chain::Chain(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      token_(zero()),
      exceptions_at_start_(std::uncaught_exceptions()) {
  internal::require_communicator(communicator_, "Chain");
}

Chain::~Chain() {
  if (!tells_others_ || std::uncaught_exceptions() <= exceptions_at_start_) return;
  internal::tell_of_unwinding(*communicator_,
                              "an exception has left the scope of its Chain; see its own output");
}

void Chain::send(at::ArrayRef<at::Tensor> x, int rank, int tag) {
  static_cast<void>(step(token_, internal::send_message(communicator_, token_, x, rank, tag)));
}

at::Tensor Chain::recv(int rank, int tag) { return internal::only_tensor(recv_list(rank, tag)); }

std::vector<at::Tensor> Chain::recv_list(int rank, int tag) {
  return step(token_, internal::receive_message(communicator_, token_, rank, tag));
}

at::Tensor Chain::bcast(const at::Tensor& x, int root) {
  return step(token_, internal::bcast_in_graph(communicator_, token_, x, root)).front();
}

std::vector<at::Tensor> Chain::gather(const at::Tensor& x, int root) {
  return step(token_, internal::gather_to_root_in_graph(communicator_, token_, x, root));
}

at::Tensor Chain::scatter(at::ArrayRef<at::Tensor> xs, int root) {
  return step(token_, internal::scatter_in_graph(communicator_, token_, xs, root)).front();
}

std::vector<at::Tensor> Chain::alltoall(at::ArrayRef<at::Tensor> xs) {
  return step(token_, internal::alltoall_in_graph(communicator_, token_, xs));
}

std::vector<at::Tensor> Chain::allgather(const at::Tensor& x) {
  return step(token_, internal::allgather_in_graph(communicator_, token_, x));
}

at::Tensor Chain::allreduce(const at::Tensor& x) {
  return step(token_, internal::allreduce_in_graph(communicator_, token_, x)).front();
}

at::Tensor Chain::reduce_scatter(at::ArrayRef<at::Tensor> xs) {
  return step(token_, internal::reduce_scatter_in_graph(communicator_, token_, xs)).front();
}

void Chain::backward() {
  const at::Tensor token = std::exchange(token_, zero());
  if (leads_on(token)) torch::autograd::backward({token}, {});
}

void Chain::backward(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    throw InvalidArgument("Chain::backward: the loss " +
                          (loss.defined() ? "has " + std::to_string(loss.numel()) + " elements"
                                          : std::string("is undefined")) +
                          ", it must be a scalar; call backward() on a rank without a loss");
  }
  if (!loss.requires_grad()) {
    if (!leads_on(token_)) {
      throw InvalidArgument("Chain::backward: nothing needs a gradient, on this rank or others");
    }
    return backward();  // the other ranks are waiting for this one
  }
  const at::Tensor token = std::exchange(token_, zero());
  if (leads_on(token)) {
    torch::autograd::backward({loss, token}, {});
  } else {
    torch::autograd::backward({loss}, {});
  }
}

at::Tensor Chain::connect(const at::Tensor& y) const {
  if (!y.defined()) throw InvalidArgument("Chain::connect: the tensor is undefined");
  return internal::connect_to(token_, {y}).front();
}

void Chain::reset() { token_ = zero(); }

}  // namespace chainmail
