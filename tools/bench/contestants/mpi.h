// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// MPI as a contestant: MPI_Allreduce in processes of its own, on the cores of our ranks.
//
// Collective: every rank makes the same ones in the same order.

#pragma once

#include <memory>
#include <string>

#include "tools/bench/contestants/contestant.h"
#include "tools/bench/measure/control.h"

namespace chainmail::bench {

/// `name`: mpi (Open MPI, two buffers), mpi-inplace, mpi-sm (coll/sm) or mpich. `remote_shell`
/// starts its processes on other nodes. Throws InvalidArgument when this MPI is not here.
[[nodiscard]] std::unique_ptr<Contestant> make_mpi_contestant(Control& control,
                                                              const std::string& name,
                                                              const std::string& remote_shell);

}  // namespace chainmail::bench
