// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Collectives in a graph, through the communicator's second group.
//
// Collective, and so is their backward. The ranks agree on who needs a gradient: when one does, all
// have a node, and when none does, none has. A rank without a gradient for a result takes part with
// zeros. Throw InvalidArgument on all ranks for an argument of one, MismatchError on all where they
// do not do the same.

#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/communicator.h>

#include "plugin/nn/parallel/exchange_node.h"

namespace chainmail::internal {

/// One result, root's. Backward: the sum goes to root.
[[nodiscard]] Exchanged bcast_in_graph(const std::shared_ptr<Communicator>& communicator,
                                       const at::Tensor& token, const at::Tensor& x, int root);
/// Every rank's at root, none elsewhere. Backward: scatter.
[[nodiscard]] Exchanged gather_to_root_in_graph(const std::shared_ptr<Communicator>& communicator,
                                                const at::Tensor& token, const at::Tensor& x,
                                                int root);
/// One result, of root's `tensors`. Backward: gather.
[[nodiscard]] Exchanged scatter_in_graph(const std::shared_ptr<Communicator>& communicator,
                                         const at::Tensor& token, at::ArrayRef<at::Tensor> tensors,
                                         int root);
/// One result of each rank. Backward: alltoall.
[[nodiscard]] Exchanged alltoall_in_graph(const std::shared_ptr<Communicator>& communicator,
                                          const at::Tensor& token,
                                          at::ArrayRef<at::Tensor> tensors);
/// One result of each rank. Backward: reduce-scatter.
[[nodiscard]] Exchanged allgather_in_graph(const std::shared_ptr<Communicator>& communicator,
                                           const at::Tensor& token, const at::Tensor& x);
/// One result. Backward: all-reduce.
[[nodiscard]] Exchanged allreduce_in_graph(const std::shared_ptr<Communicator>& communicator,
                                           const at::Tensor& token, const at::Tensor& x);
/// One result. Backward: all-gather.
[[nodiscard]] Exchanged reduce_scatter_in_graph(const std::shared_ptr<Communicator>& communicator,
                                                const at::Tensor& token,
                                                at::ArrayRef<at::Tensor> tensors);

}  // namespace chainmail::internal
