// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_environment.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace chainmail::launch {
namespace {

// Of libpmix's headers; agents do without them.
#ifndef CHAINMAIL_PMIX_VERSION
#define CHAINMAIL_PMIX_VERSION "4.2.2"
#endif

constexpr std::string_view kForeign[] = {"PMIX_",
                                         "PMI_",
                                         "PMI2_",
                                         "ORTE_",
                                         "PRTE_",
                                         "OMPI_COMM_WORLD_",
                                         "OMPI_UNIVERSE_SIZE",
                                         "OMPI_APP_CTX_NUM_PROCS",
                                         "OMPI_FIRST_RANKS",
                                         "OMPI_FILE_LOCATION",
                                         "OMPI_NUM_APP_CTX",
                                         "OMPI_MCA_orte_",
                                         "OMPI_MCA_ess",
                                         "OMPI_MCA_pmix",
                                         "OMPI_MCA_schizo",
                                         "OMPI_MCA_initial_wdir",
                                         "OMPI_MCA_shmem_RUNTIME_",
                                         "OMPI_MCA_mpi_oversubscribe",
                                         "OMPI_ARGV",
                                         "OMPI_COMMAND",
                                         "MPI_LOCALNRANKS",
                                         "MPI_LOCALRANKID",
                                         "HYDI_",
                                         "HYDRA_"};

bool is_foreign(std::string_view name) {
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::any_of(std::begin(kForeign), std::end(kForeign), begins) && !begins("PMIX_MCA_");
}

}  // namespace

void drop_foreign_mpi(Environment& variables) {
  std::erase_if(variables, [](const auto& variable) { return is_foreign(variable.first); });
}

Environment pmix_variables(const MpiOrder& order, std::uint32_t rank, const PmixPlace& place) {
  const std::string uri = order.name + "-server." + std::to_string(order.node) +
                          ";tcp4://127.0.0.1:" + std::to_string(place.port);
  Environment variables{
      {"PMIX_NAMESPACE", order.name},
      {"PMIX_RANK", std::to_string(rank)},
      {"PMIX_SECURITY_MODE", "native"},
      {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"},
      {"PMIX_GDS_MODULE", "hash"},
      {"PMIX_SERVER_TMPDIR", place.directory},
      {"PMIX_SYSTEM_TMPDIR", place.directory},
      {"PMIX_HOSTNAME", order.node_names[order.node]},
      {"PMIX_VERSION", CHAINMAIL_PMIX_VERSION},
  };
  // The same server for clients of every version.
  for (const char* version : {"41", "4", "3", "21", "2"}) {
    variables[std::string("PMIX_SERVER_URI") + version] = uri;
  }
  return variables;
}

Environment open_mpi_variables(const MpiOrder& order, const MpiRank& rank) {
  const std::string size = std::to_string(order.node_of_rank.size());
  const std::string local = std::to_string(rank.local);
  return {
      // Without it Open MPI 4 takes a rank that mpirun did not start for a job of one process, and
      // says nothing.
      {"OMPI_MCA_schizo", "ompi"},
      {"OMPI_COMM_WORLD_RANK", std::to_string(rank.rank)},
      {"OMPI_COMM_WORLD_SIZE", size},
      {"OMPI_COMM_WORLD_LOCAL_RANK", local},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(rank.local_size)},
      {"OMPI_COMM_WORLD_NODE_RANK", local},
  };
}

Environment pmi1_variables(const MpiOrder& order, std::uint32_t rank, int fd) {
  return {
      {"PMI_FD", std::to_string(fd)},
      {"PMI_RANK", std::to_string(rank)},
      {"PMI_SIZE", std::to_string(order.node_of_rank.size())},
  };
}

}  // namespace chainmail::launch
