// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Nodes of autograd's graph whose backward communicates, and the tokens that put them in order.
//
// A token is a zero that a node leaves and the next one takes: backward reaches the former only
// after the latter has run. Local, like everything here; what a node runs is another matter.
//
// A node runs once, or as often as backward retains the graph: the other ranks count with that.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

/// Gradients of results, undefined where there is none, to gradients of arguments, likewise.
using ExchangeBackward =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients)>;

/// What a function in a graph brings and leaves.
struct Exchanged {
  std::vector<at::Tensor> results;
  at::Tensor token;
};

/// What a function did, and how to go back.
struct ExchangeRecord {
  std::string name;
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> results;   ///< new tensors
  std::vector<bool> have_gradients;  ///< which results have
  ExchangeBackward backward;
};

/// Whether a walk backwards has come through the node that left `token`: it leads nowhere any more.
[[nodiscard]] bool is_spent(const at::Tensor& token);

/// `gradient` without gaps: that of a tensor that was looked up in may be sparse.
[[nodiscard]] at::Tensor dense_gradient(const at::Tensor& gradient);

/// Whether autograd would record something of `tensor` now.
[[nodiscard]] bool needs_gradient(const at::Tensor& tensor);

/// Puts a node behind the results. `token` is undefined or spent where nothing came before.
[[nodiscard]] Exchanged record_exchange(const at::Tensor& token, ExchangeRecord record);
/// The results of a function that nothing goes back through; the token stays what it was.
[[nodiscard]] Exchanged without_record(const at::Tensor& token, std::vector<at::Tensor> results);

/// The same values in the same memory, whose backward comes before that of `token`.
[[nodiscard]] std::vector<at::Tensor> connect_to(const at::Tensor& token,
                                                 const std::vector<at::Tensor>& tensors);

}  // namespace chainmail::internal
