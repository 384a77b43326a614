// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A multi-node optimizer whose state is in slices on the ranks of a node: each saves and loads its
// own. Thread and collective rules are the checkpointer's.

#pragma once

#include <string>

#include <chainmail/optimizer.h>

#include "plugin/checkpoint/items/items.h"

namespace chainmail::internal {

/// Whether the state is in slices that are known element by element. Others have to be put together
/// before they are saved.
[[nodiscard]] bool saves_slices(const MultiNodeOptimizer& optimizer);

/// Of an optimizer for which saves_slices() is true. Flush it before.
[[nodiscard]] CheckpointItem sliced_optimizer_item(const std::string& name,
                                                   MultiNodeOptimizer& optimizer);

}  // namespace chainmail::internal
