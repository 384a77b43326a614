// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How this process comes to MPI: opens libchainmail_mpi.so, and starts MPI unless the program has.
//
// Any thread. Collective over the ranks of a group; see join_mpi() for the first one.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/comm/mpi/mpi_world.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

/// Who asks for MPI.
struct MpiMember {
  int rank = 0;                   ///< in the group
  std::vector<int> global_ranks;  ///< of the group's ranks, for messages
  std::string host;
};

/// The process's MpiWorld, made by the first call and kept: MPI can be started once. That first
/// time every process of MPI_COMM_WORLD must come, with whatever group; later groups need only
/// their own ranks.
/// Throws InvalidArgument (no library, no mpiexec, too low a level of threads, a world smaller than
/// the group; also when that is so on another rank), TimeoutError that names who did not come, and
/// MpiError.
[[nodiscard]] std::shared_ptr<MpiWorld> join_mpi(const MpiMember& member, Rendezvous& rendezvous,
                                                 internal::Deadline deadline);

/// Opens the library of that file name beside this code, or where the system looks. Throws
/// InvalidArgument.
[[nodiscard]] MpiLibrary& open_mpi_library(const std::string& file);

}  // namespace chainmail::ops
