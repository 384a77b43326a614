// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An MPI job of as many processes as the benchmark has ranks, one beside each of them on the same
// cores: started by rank 0 through that MPI's mpiexec, steered by every rank over a local socket.
//
// Collective: every rank makes it and destroys it. Not thread-safe.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "tools/bench/measure/control.h"
#include "tools/bench/measure/timing_loop.h"
#include "tools/bench/mpi/protocol.h"

namespace chainmail::bench {

/// One MPI implementation as it is called here.
struct MpiFlavor {
  std::string name;     ///< of the contestant, such as "mpi-sm"
  std::string mpiexec;  ///< "mpiexec.openmpi"
  std::string program;  ///< "chainmail-bench-openmpi"
  std::string package;  ///< what to install when it is missing
  std::vector<std::string> arguments;
  bool is_in_place = false;
  bool is_for_nodes = false;  ///< knows --host and an rsh agent
};

/// The flavors: mpi, mpi-inplace, mpi-sm, mpich. Throws InvalidArgument for another name.
[[nodiscard]] MpiFlavor mpi_flavor(const std::string& name);

/// mpiexec's command line for one process per rank; `hosts` are the ranks', in rank order.
[[nodiscard]] std::vector<std::string> mpiexec_command(const MpiFlavor& flavor,
                                                       const std::string& program,
                                                       const std::string& token,
                                                       const std::vector<std::string>& hosts,
                                                       const std::string& remote_shell);

/// True for what the starter of this process has left and another mpiexec must not see.
[[nodiscard]] bool is_of_starter(std::string_view variable);

class MpiJob {
 public:
  /// `remote_shell` starts processes on other nodes; empty: as mpiexec does. Throws
  /// InvalidArgument that names the package when this MPI is not here or was not built against.
  MpiJob(Control& control, const MpiFlavor& flavor, const std::string& remote_shell);
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  ~MpiJob();

  /// As MPI says it: "Open MPI v4.1.4".
  const std::string& version() const noexcept { return version_; }
  /// Has the process beside this rank do a task; `wrong` may be null.
  Sample run(const MpiCommand& command, std::int64_t* wrong);

 private:
  void meet(int listener, int size);
  void receive(void* data, std::size_t bytes, std::chrono::milliseconds timeout);
  bool has_mpiexec_ended();

  const std::string name_;
  const int rank_;
  std::string version_;
  pid_t mpiexec_ = -1;  ///< on rank 0
  internal::UniqueFd socket_;
};

}  // namespace chainmail::bench
