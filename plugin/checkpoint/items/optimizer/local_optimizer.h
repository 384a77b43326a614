// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A multi-node optimizer with local steps: every node has a state of the wrapped optimizer of its
// own, which its first rank saves; the outer optimizer's momentum is saved in parts by the ranks of
// the first node, each its slices. What nodes have in common is the parameters, after a flush().
//
// Thread and collective rules are the checkpointer's.

#pragma once

#include <chainmail/optimizer.h>

#include "plugin/checkpoint/items/items.h"

namespace chainmail::internal {

/// `item` is that of the optimizer where all nodes have the same; flushes before. In a job with
/// other nodes, node i goes on with the state of the old node i modulo their number.
[[nodiscard]] CheckpointItem local_optimizer_item(CheckpointItem item,
                                                  MultiNodeOptimizer& optimizer);

}  // namespace chainmail::internal
