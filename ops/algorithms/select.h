// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What `auto` means: which all-reduce suits a message of this size on these nodes, and why.
//
// Pure: equal arguments give equal answers on every rank, which is what makes it safe.

#pragma once

#include <cstddef>

#include "ops/core/tuning.h"
#include "ops/topology.h"
#include "ops/types.h"

namespace chainmail::ops {

struct Choice {
  Algorithm algorithm = Algorithm::kFlat;
  const char* reason = "";  ///< completes "picked hierarchical because ..."
};

/// Never returns kAuto or kNaive. `tuning` decides where there is a choice: between nodes of which
/// some have several ranks.
[[nodiscard]] Choice select_all_reduce(std::size_t bytes, const Topology& topology,
                                       const Tuning& tuning = {}) noexcept;

}  // namespace chainmail::ops
