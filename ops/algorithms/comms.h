// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The Comms that an algorithm composes, as one rank sees them.
//
// A plain value that owns nothing. Which members an algorithm needs is said at the algorithm; all
// algorithms give the same bits on every rank and from run to run.

#pragma once

#include "ops/comm/comm.h"
#include "ops/topology.h"

namespace chainmail::ops {

struct Comms {
  const Topology* topology = nullptr;
  int rank = 0;
  /// Ranks of this node by local rank; null when this rank is alone on its node.
  Comm* local = nullptr;
  /// Ranks of equal local rank by node; null on one node, and for a local rank that the smallest
  /// node does not have. Local rank 0's joins the leaders.
  Comm* cross = nullptr;
  /// All ranks.
  Comm* flat = nullptr;
};

}  // namespace chainmail::ops
