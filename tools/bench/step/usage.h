// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What trainers use besides time: memory of a node, and bytes between nodes.
//
// Collective: every rank makes the same calls.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <chainmail/communicator.h>

#include "tools/bench/step/trainers.h"

namespace chainmail::bench {

/// What the ranks of a node have in memory, in bytes, pages that several of them map counted once;
/// the mean over the nodes. What malloc keeps for later is given back to the kernel first.
[[nodiscard]] double node_memory(Communicator& communicator);

/// Bytes that a node sends in a step of `trainer`, the mean over the nodes; needs a network
/// namespace for each.
[[nodiscard]] double bytes_of_step(Trainer& trainer, const at::Tensor& x, const at::Tensor& t,
                                   std::int64_t steps, Communicator& communicator);

}  // namespace chainmail::bench
