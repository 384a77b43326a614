// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The variables by which an MPI library finds its process manager. Pure functions, thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/environment.h"
#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

/// Where ranks of this node find the PMIx server.
struct PmixPlace {
  std::string directory;  ///< for session files
  std::uint16_t port = 0;
};

/// One rank of the node that `order` is for.
struct MpiRank {
  std::uint32_t rank = 0;
  std::uint32_t local = 0;
  std::uint32_t local_size = 0;
};

/// Removes what another process manager (an mpiexec or srun around the launcher) gave to this
/// process. What users set for Open MPI (OMPI_MCA_*) stays.
void drop_foreign_mpi(Environment& variables);

/// What libpmix reads: the same as PMIx_server_setup_fork would give.
[[nodiscard]] Environment pmix_variables(const MpiOrder& order, std::uint32_t rank,
                                         const PmixPlace& place);

/// What Open MPI 4 reads besides, and what scripts know from mpirun.
[[nodiscard]] Environment open_mpi_variables(const MpiOrder& order, const MpiRank& rank);

/// What MPICH and its relatives read: a PMI-1 socket under the number `fd`.
[[nodiscard]] Environment pmi1_variables(const MpiOrder& order, std::uint32_t rank, int fd);

}  // namespace chainmail::launch
