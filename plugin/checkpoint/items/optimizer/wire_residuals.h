// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What integer wires have rounded away, in checkpoints: every rank writes what it has of it in
// parts (store/parts.h). A job of the same nodes and ranks goes on with the same bits; in any other
// one all of it is owed by some rank, so that nothing is lost.
//
// Thread and collective rules are the checkpointer's.

#pragma once

#include <string>

#include <chainmail/optimizer.h>

#include "plugin/checkpoint/items/items.h"

namespace chainmail::internal {

/// Beside the item of the optimizer, which comes first. Jobs on other wires save nothing, and pay
/// what one on an integer wire has kept.
[[nodiscard]] CheckpointItem wire_residuals_item(const std::string& optimizer_name,
                                                 MultiNodeOptimizer& optimizer);

}  // namespace chainmail::internal
