// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Blocking collectives for nodes of an autograd graph, in the communicator's second group.
//
// Collective: forward and backward reach their nodes in the same order on all ranks when the
// graphs are the same. Not differentiable themselves.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chainmail/communicator.h>

namespace chainmail::internal {

/// What keeps the ranks from adding up such tensors; empty for those of one dtype that they can.
[[nodiscard]] std::string why_not_summable(at::ArrayRef<at::Tensor> tensors);

/// The sum over the ranks, as a new tensor.
[[nodiscard]] at::Tensor sum_in_graph(Communicator& communicator, const at::Tensor& x);

/// The sum over the ranks at `root`; elsewhere of no use.
[[nodiscard]] at::Tensor sum_to_root(Communicator& communicator, const at::Tensor& x, int root);

/// The sum of the ranks' parts[rank()]. Parts of one dtype, whose shapes agree position by
/// position. Where they are equally large each rank gets its own sum alone, a reduce-scatter;
/// otherwise all parts are summed everywhere. Throws InvalidArgument for another number of parts
/// than of ranks, or for several dtypes.
[[nodiscard]] at::Tensor scatter_sum_in_graph(Communicator& communicator,
                                              at::ArrayRef<at::Tensor> parts);

/// The tensors of all ranks in rank order; shapes may differ. Throws MismatchError on all ranks
/// when the dtypes do.
[[nodiscard]] std::vector<at::Tensor> gather_in_graph(Communicator& communicator,
                                                      const at::Tensor& x);

/// Equally many numbers of each rank, one rank after another. `what` is for messages.
[[nodiscard]] std::vector<double> gather_numbers(Communicator& communicator,
                                                 std::span<const double> own,
                                                 const std::string& what);

/// Keeps `communicator` in a node until its backward has run.
void save_communicator(torch::autograd::AutogradContext* context,
                       const std::shared_ptr<Communicator>& communicator);
[[nodiscard]] std::shared_ptr<Communicator> saved_communicator(
    torch::autograd::AutogradContext* context);

}  // namespace chainmail::internal
