// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the cores of a node are shared out among its ranks.

#pragma once

#include <vector>

namespace chainmail::launch {

struct CpuShare {
  std::vector<int> cpus;  ///< logical processors to bind to; empty: not bound
  int cores = 1;          ///< what OMP_NUM_THREADS is set to
};

/// Pure: `cores` lists the logical processors of each core in topology order. Shares are disjoint
/// neighbours of each other; with more ranks than cores nobody is bound and each has one core.
[[nodiscard]] std::vector<CpuShare> share_cores(const std::vector<std::vector<int>>& cores,
                                                int ranks);

/// The cores of this machine that this process may use, as hwloc sees them; not thread-safe.
[[nodiscard]] std::vector<std::vector<int>> usable_cores();

}  // namespace chainmail::launch
