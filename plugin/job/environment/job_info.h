// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who am I: rank, size and how the ranks meet, read from the environment that the program's
// starter left. Pure functions but for the search of Hydra's proxy; nothing is connected here.
//
// The first of these wins that left its variables, as starters are usually nested: our launcher
// (CHAINMAIL_JOB_FD), then torchrun (or anybody who sets RANK, WORLD_SIZE and MASTER_*, such as
// Kubernetes' PyTorchJob), an indexed job of Kubernetes, Open MPI's mpirun, MPICH's mpiexec, a
// Slurm step, SageMaker (one rank per container), then alone. A starter inside a rank of our
// launcher must therefore run without CHAINMAIL_JOB_FD; what the launcher sets for MPI libraries
// makes no rank by itself. Where an inner starter can be told by a place that differs from the
// outer one's, that is an error.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/job/environment/env.h"

namespace chainmail::internal {

enum class Starter {
  kAlone,
  kLauncher,
  kTorchrun,
  kKubernetes,
  kMpirun,
  kMpiexec,  ///< of MPICH, MVAPICH or Intel MPI
  kSrun,
  kSageMaker,
};

/// "alone", "launcher", "torchrun", "kubernetes", "mpirun", "mpiexec", "srun", "sagemaker".
[[nodiscard]] const char* to_string(Starter starter) noexcept;

/// Where the store of a job is.
enum class StoreLocation {
  kInProcess,    ///< one rank
  kLauncher,     ///< behind the inherited socket job_fd
  kTcp,          ///< a TCPStore at host:port
  kLocalSocket,  ///< one node: rank 0 announces the port of its TCPStore over an abstract socket
};

struct JobInfo {
  Starter starter = Starter::kAlone;
  int rank = 0;
  int size = 1;
  std::uint32_t generation = 0;  ///< restarts of the same job
  StoreLocation store = StoreLocation::kInProcess;
  int job_fd = -1;            ///< kLauncher
  std::string host;           ///< kTcp
  std::uint16_t port = 0;     ///< kTcp
  bool rank_0_serves = true;  ///< kTcp: false when torchrun's agent serves the store
  std::string id;             ///< of the job; names the abstract socket, prefixes store keys
};

/// Throws InvalidArgument that names the variables when they are incomplete or contradict each
/// other.
[[nodiscard]] JobInfo read_job_info(const Environment& environment);

/// The first host of a Slurm node list: "n[03-05,9],m1" is n03. Throws InvalidArgument.
[[nodiscard]] std::string first_slurm_host(std::string_view node_list);

/// SageMaker's SM_HOSTS, ["algo-1","algo-2"]. Throws InvalidArgument.
[[nodiscard]] std::vector<std::string> sagemaker_hosts(std::string_view list);

/// The first IPv4 (else first) address in Open MPI's URI "123.0;tcp://10.0.0.1,10.1.0.1:4567";
/// nothing when there is none.
[[nodiscard]] std::optional<std::string> first_uri_address(std::string_view uri);

}  // namespace chainmail::internal
