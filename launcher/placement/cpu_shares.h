// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the cores of a node are shared out among its ranks.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// A core of this machine; the parts that it lies in are numbered from 0.
struct Core {
  std::vector<int> cpus;  ///< its logical processors
  int l3 = 0;
  int numa = 0;
  int socket = 0;
};

struct CpuShare {
  std::vector<int> cpus;  ///< logical processors to bind to; empty: not bound
  int cores = 1;          ///< what OMP_NUM_THREADS is set to
};

/// One share per local rank. Pure; `cores` in topology order. By default shares are disjoint
/// neighbours of each other, and with more ranks than cores nobody is bound and each has one core.
/// Throws UsageError when there are not as many cores (hardware threads) as the binding asks for.
/// `granted`: processors that a scheduler gives the job here; 0: it says nothing. Where that is
/// less than there is, nobody knows which ones they are: nobody is bound unless `binding` says so,
/// and only their number is shared out.
[[nodiscard]] std::vector<CpuShare> share_cores(const std::vector<Core>& cores, int ranks,
                                                const Binding& binding = {}, int granted = 0);

/// The cores of this machine that this process may use, as hwloc sees them; not thread-safe.
[[nodiscard]] std::vector<Core> usable_cores();

/// True where this process may not use all processors of the machine: somebody, mostly the
/// scheduler, has said which ones are the job's.
[[nodiscard]] bool is_confined() noexcept;

/// "0-3,8".
[[nodiscard]] std::string cpu_list(std::vector<int> cpus);

}  // namespace chainmail::launch
