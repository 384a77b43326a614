// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether whoever started this process gave it a place in MPI, too. Pure; starts nothing.

#pragma once

#include "plugin/job/env.h"

namespace chainmail::internal {

/// Throws InvalidArgument when MPI_Init would make a world of this process alone, or one that
/// numbers the ranks otherwise than the job.
void check_mpi_starter(const Environment& environment);

}  // namespace chainmail::internal
