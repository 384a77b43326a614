// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/exchange_node.h"

#include <atomic>
#include <mutex>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <chainmail/error.h>

namespace chainmail::internal {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
// A std::shared_ptr in older versions of LibTorch, an intrusive pointer in newer ones.
using NodePtr = decltype(Edge::function);

// Input and output 0 are tokens, whose gradients are nothing but an order.
class ExchangeNode final : public Node {
 public:
  ExchangeNode(std::string name, ExchangeBackward backward)
      : name_(std::move(name)), backward_(std::move(backward)) {}

  bool has_run() const noexcept { return has_run_; }
  std::string name() const override { return "chainmail::" + name_; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(name_ + " has no second derivative: backward() without create_graph");
    }
    const ExchangeBackward backward = kept_backward();
    if (!backward) return pass_by(gradients);
    has_run_ = true;
    variable_list result = backward({gradients.begin() + 1, gradients.end()});
    result.insert(result.begin(), at::Tensor());
    return result;
  }

  // After a walk that does not retain the graph. What is left may live as long as any result: it
  // must not keep a communicator open.
  void release_variables() override {
    ExchangeBackward released;
    const std::lock_guard lock(mutex_);
    released.swap(backward_);
  }

 private:
  ExchangeBackward kept_backward() {
    const std::lock_guard lock(mutex_);
    return backward_;
  }

  // The other ranks have had their part of this node. A walk that brings it nothing is on its way
  // from a later one, to nodes that have run too.
  variable_list pass_by(const variable_list& gradients) const {
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      throw InvalidArgument(name_ + ": backward has been here and has freed the graph; call " +
                            "backward() once, of the sum of the losses, or the first one with " +
                            "retain_graph on all ranks");
    }
    return variable_list(num_outputs());
  }

  const std::string name_;
  ExchangeBackward backward_;  // empty when it is released
  std::atomic<bool> has_run_{false};
};

template <typename Pointer, typename T, typename... Arguments>
Pointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_constructible_v<Pointer, Node*, void (*)(Node*)>) {
    // LibTorch's own deleter does not recurse through a long graph. Found where it exists.
    return Pointer(new T(std::forward<Arguments>(arguments)...), [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

Edge edge_to(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                                    : Edge();
}

at::Tensor make_token() { return at::zeros({}, c10::TensorOptions(c10::kFloat)); }

void add_output(const NodePtr& node, const at::Tensor& tensor, bool has_gradient = true) {
  if (!has_gradient) {
    node->add_input_metadata(Node::undefined_input());
    return;
  }
  const auto number = node->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, {node, number});
}

}  // namespace

bool is_spent(const at::Tensor& token) {
  const auto* const node = dynamic_cast<const ExchangeNode*>(token.grad_fn().get());
  return node != nullptr && node->has_run();
}

at::Tensor dense_gradient(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
}

bool needs_gradient(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.defined() && tensor.requires_grad();
}

Exchanged record_exchange(const at::Tensor& token, ExchangeRecord record) {
  const auto node = make_node<NodePtr, ExchangeNode>(record.name, std::move(record.backward));
  node->add_next_edge(token.defined() && !is_spent(token) ? edge_to(token) : Edge());
  for (const at::Tensor& argument : record.arguments) {
    node->add_next_edge(needs_gradient(argument) ? edge_to(argument) : Edge());
  }
  Exchanged exchanged{std::move(record.results), make_token()};
  add_output(node, exchanged.token);
  for (std::size_t i = 0; i < exchanged.results.size(); ++i) {
    add_output(node, exchanged.results[i], record.have_gradients.at(i));
  }
  return exchanged;
}

Exchanged without_record(const at::Tensor& token, std::vector<at::Tensor> results) {
  return {std::move(results), token.defined() && !is_spent(token) ? token : make_token()};
}

std::vector<at::Tensor> connect_to(const at::Tensor& token,
                                   const std::vector<at::Tensor>& tensors) {
  if (!at::GradMode::is_enabled() || !token.requires_grad() || is_spent(token)) return tensors;
  ExchangeRecord record{
      .name = "pseudo_connect",
      .arguments = tensors,
      .results = {},
      .have_gradients = {},
      .backward = [](const std::vector<at::Tensor>& gradients) { return gradients; }};
  for (const at::Tensor& tensor : tensors) {
    record.results.push_back(tensor.detach());
    record.have_gradients.push_back(at::isFloatingType(tensor.scalar_type()) ||
                                    at::isComplexType(tensor.scalar_type()));
  }
  return record_exchange(token, std::move(record)).results;
}

}  // namespace chainmail::internal
