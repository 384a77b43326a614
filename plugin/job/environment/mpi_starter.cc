// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/mpi_starter.h"

#include <limits>
#include <string>

#include "base/error.h"

namespace chainmail::internal {
namespace {

constexpr long long kMost = std::numeric_limits<int>::max();

std::optional<long long> mpi_rank(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const auto rank = read_integer(environment, name, 0, kMost)) return rank;
  }
  return std::nullopt;
}

}  // namespace

void check_mpi_starter(const Environment& environment) {
  const std::string what = "MPI between nodes (cross=mpi) ";
  const auto place = mpi_rank(environment);
  const auto rank = read_integer(environment, "RANK", 0, kMost);
  // The launcher sets RANK and PMIX_RANK alike; other variables came from an outer mpiexec.
  const bool is_launcher = environment("CHAINMAIL_JOB_FD").has_value();
  const auto pmix_rank = read_integer(environment, "PMIX_RANK", 0, kMost);
  if (is_launcher && (!pmix_rank || place != rank)) {
    throw InvalidArgument(
        what +
        "cannot be had in this job: the launcher does not serve Open MPI here, so that each rank "
        "would be an MPI world of its own. Start without --mpi none or pmi1, with chainmail-pmix "
        "beside the launcher on every host (built where libpmix-dev is); or start the program "
        "with mpiexec, or leave TCP between nodes");
  }
  if (!place) {
    throw InvalidArgument(what +
                          "needs a starter that knows MPI: neither OMPI_COMM_WORLD_RANK nor "
                          "PMIX_RANK nor PMI_RANK is set; start the program with mpiexec or "
                          "srun --mpi=pmix, or leave TCP between nodes");
  }
  const auto size = read_integer(environment, "WORLD_SIZE", 1, kMost);
  const auto mpi_size = read_integer(environment, "OMPI_COMM_WORLD_SIZE", 1, kMost);
  const auto pmi_rank = read_integer(environment, "PMI_RANK", 0, kMost);
  const auto pmi_size = read_integer(environment, "PMI_SIZE", 1, kMost);
  // Of MPICH's mpiexec inside another starter, whose variables MPI_Init would read.
  if (environment("MPI_LOCALNRANKS") &&
      ((pmi_rank && *pmi_rank != *place) || (pmi_size && mpi_size && *pmi_size != *mpi_size))) {
    throw InvalidArgument(
        what + "needs one MPI starter: this is process " + std::to_string(pmi_rank.value_or(0)) +
        " by PMI_RANK, but " + std::to_string(*place) +
        " by OMPI_COMM_WORLD_RANK or PMIX_RANK; start the program with Open MPI's mpiexec alone");
  }
  if ((rank && *rank != *place) || (size && mpi_size && *size != *mpi_size)) {
    throw InvalidArgument(
        what + "needs ranks that are MPI's: this is rank " + std::to_string(rank.value_or(*place)) +
        " of " + (size ? std::to_string(*size) : "its job") + ", but process " +
        std::to_string(*place) + " of " + (mpi_size ? std::to_string(*mpi_size) : "its MPI job") +
        "; start the program with mpiexec alone");
  }
}

}  // namespace chainmail::internal
