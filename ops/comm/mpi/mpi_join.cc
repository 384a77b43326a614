// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/mpi/mpi_join.h"

#include <mutex>

#include "base/error.h"
#include "base/shared_library.h"
#include "base/threads/poll_until.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {
namespace {

constexpr char kLibrary[] = "libchainmail_mpi.so";
constexpr char kReady[] = "ready";

std::string key_of(int rank) { return "mpi/start/" + std::to_string(rank); }

/// The process's MPI; started at most once.
struct ProcessMpi {
  std::mutex mutex;
  MpiLibrary* library = nullptr;
  bool is_started = false;
  std::shared_ptr<MpiWorld> world;  // once all processes have come
};

ProcessMpi& process_mpi() {
  // Kept as long as the process, like MPI itself.
  static auto& mpi = *new ProcessMpi();
  return mpi;
}

std::string who(const MpiMember& member, std::size_t rank) {
  return "rank " + std::to_string(member.global_ranks[rank]);
}

// MPI_Init cannot be interrupted: nobody calls it before all have said that they will.
void wait_for_all(const MpiMember& member, Rendezvous& rendezvous, internal::Deadline deadline) {
  for (std::size_t rank = 0; rank < member.global_ranks.size(); ++rank) {
    std::string answer;
    try {
      answer =
          get_from(rendezvous, static_cast<int>(rank), static_cast<int>(member.global_ranks.size()),
                   key_of, deadline, "came to start MPI");
    } catch (const TimeoutError&) {
      throw TimeoutError(who(member, rank) + " has not come to start MPI; " +
                             who(member, static_cast<std::size_t>(member.rank)) + " on " +
                             member.host +
                             " waited for it in vain. Does it ask for MPI between nodes, too?",
                         {member.global_ranks[rank]});
    }
    if (answer != kReady) throw InvalidArgument("on " + who(member, rank) + ": " + answer);
  }
}

void start(ProcessMpi& mpi, const MpiMember& member, internal::Deadline deadline) {
  if (!mpi.is_started) {
    const std::string problem = mpi.library->start();
    if (!problem.empty()) throw MpiError("MPI between nodes: " + problem);
    mpi.is_started = true;
  }
  const MpiApi& api = mpi.library->api();
  if (!internal::poll_until([&] { return mpi.library->is_ready(); }, deadline)) {
    throw TimeoutError("MPI between nodes: not all " + std::to_string(api.size()) +
                       " processes of MPI_COMM_WORLD have come. The first time that a process "
                       "makes a group over MPI, all processes of the MPI job must");
  }
  if (static_cast<std::size_t>(api.size()) < member.global_ranks.size()) {
    throw InvalidArgument("MPI between nodes: MPI_COMM_WORLD has " + std::to_string(api.size()) +
                          (api.size() == 1 ? " process" : " processes") + ", the group " +
                          std::to_string(member.global_ranks.size()) +
                          " ranks: this MPI library does not know who started them, or knows only "
                          "some; start all ranks with one mpiexec of the same MPI, or with the "
                          "launcher");
  }
  mpi.world = std::make_shared<MpiWorld>(std::shared_ptr<MpiApi>(
      &mpi.library->api(), [](MpiApi* /*lives as long as the process*/) {}));
}

}  // namespace

MpiLibrary& open_mpi_library(const std::string& file) {
  const internal::LibraryOnDemand library(
      "MPI between nodes", reinterpret_cast<const void*>(&open_mpi_library), file,
      "It is built where Open MPI's headers are (Debian: libopenmpi-dev) and needs Open MPI's "
      "library (libopenmpi3) at run time; without it use TCP between nodes");
  return *library.ask<MpiLibraryFunction>(
      kMpiLibraryFunction, [](auto function) { return function(kMpiLibraryVersion); });
}

std::shared_ptr<MpiWorld> join_mpi(const MpiMember& member, Rendezvous& rendezvous,
                                   internal::Deadline deadline) {
  ProcessMpi& mpi = process_mpi();
  const std::string own_key = key_of(member.rank);
  {
    const std::lock_guard lock(mpi.mutex);
    if (mpi.world != nullptr) {
      rendezvous.set(own_key, kReady);  // for those whose first group this is
      return mpi.world;
    }
    try {
      if (mpi.library == nullptr) mpi.library = &open_mpi_library(kLibrary);
      const std::string refusal = mpi.library->refusal();
      if (!refusal.empty()) throw InvalidArgument("MPI between nodes: " + refusal);
    } catch (const Error& error) {
      rendezvous.set(own_key, error.what());
      throw;
    }
  }
  rendezvous.set(own_key, kReady);
  wait_for_all(member, rendezvous, deadline);
  const std::lock_guard lock(mpi.mutex);
  if (mpi.world == nullptr) start(mpi, member, deadline);
  return mpi.world;
}

}  // namespace chainmail::ops
