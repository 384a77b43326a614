// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors from one rank to another in a graph, and their gradients back.
//
// Two ranks only, and not through the communicator's queue of collectives: sends and receives stand
// beside it, under tags that users cannot have, so that no third rank is needed to set anything up.
// Whoever sends, forward or backward, sends a copy and goes on: ranks that send each other tensors
// of any size do not wait for each other. A gradient has a tag of its message's own, so that it
// meets its message whatever order a rank's graph is walked in.

#pragma once

#include <chainmail/communicator.h>

#include "plugin/nn/parallel/exchange_node.h"

namespace chainmail::internal {

/// No results. Backward receives, from who has received these. A message without a tensor that
/// needs a gradient leaves no node, and nothing comes back for it. Throws InvalidArgument for
/// tensors that cannot be sent, no tensors, this rank itself, a rank that is none, or a tag outside
/// 0 .. 2^30 - 1.
[[nodiscard]] Exchanged send_message(const std::shared_ptr<Communicator>& communicator,
                                     const at::Tensor& token, at::ArrayRef<at::Tensor> tensors,
                                     int destination, int tag);

/// Backward sends the gradients: where this rank has none for a tensor, a few bytes that say so.
[[nodiscard]] Exchanged receive_message(const std::shared_ptr<Communicator>& communicator,
                                        const at::Tensor& token, int source, int tag);

/// Of a message of one; InvalidArgument for others.
[[nodiscard]] at::Tensor only_tensor(const std::vector<at::Tensor>& received);

}  // namespace chainmail::internal
