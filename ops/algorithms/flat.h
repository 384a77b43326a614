// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// flat: one all-reduce over all ranks, wherever they sit. ChainerMN's "flat" (pack all, one
// MPI_Allreduce); "naive" is the same, tensor by tensor.
//
// P ranks per node, N nodes, n = P*N, S bytes. Between nodes with the ring of P2pComm:
//   steps 2(n-1), log2(n) for small messages
//   bytes sent per rank 2S(n-1)/n; per node and direction the same when ranks are numbered node by
//   node, P times as much when they are numbered round robin
// One node: shared memory, every rank reduces S/n.

#pragma once

#include <cstddef>

#include "ops/algorithms/comms.h"

namespace chainmail::ops {

/// In place over `count` elements; needs comms.flat. Throws what the Comm throws; it is dead then.
void all_reduce_flat(const Comms& comms, std::byte* data, std::size_t count,
                     const Reduction& reduction, const OpContext& context);

}  // namespace chainmail::ops
