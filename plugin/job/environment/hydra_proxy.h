// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which process started the ranks of this node, under the mpiexec of MPICH and its kin. Reads
// /proc.

#pragma once

#include <sys/types.h>

#include "plugin/job/environment/env.h"

namespace chainmail::internal {

/// The nearest ancestor that is no part of this rank, as shells between mpiexec and the program
/// are: the same process for all ranks of a node, and another one for every job.
[[nodiscard]] pid_t hydra_proxy(const Environment& environment);

}  // namespace chainmail::internal
