// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the starter of this process made it an MPI process, too. Pure; starts nothing.

#pragma once

#include "plugin/job/environment/env.h"

namespace chainmail::internal {

/// Throws InvalidArgument when MPI_Init would make a world of this process alone, or one that
/// numbers the ranks otherwise than the job.
void check_mpi_starter(const Environment& environment);

}  // namespace chainmail::internal
