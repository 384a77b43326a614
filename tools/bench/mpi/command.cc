// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tools/bench/mpi/job.h"

namespace chainmail::bench {
namespace {

MpiFlavor open_mpi(const std::string& name) {
  return {
      name, "mpiexec.openmpi", "chainmail-bench-openmpi", "openmpi-bin libopenmpi-dev", {}, false,
      true};
}

// "n1:2,n2:2" of n1, n1, n2, n2.
std::string host_list(const std::vector<std::string>& hosts) {
  std::string list;
  for (std::size_t i = 0; i < hosts.size();) {
    std::size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    list += (list.empty() ? "" : ",") + hosts[i] + ":" + std::to_string(end - i);
    i = end;
  }
  return list;
}

}  // namespace

MpiFlavor mpi_flavor(const std::string& name) {
  MpiFlavor flavor = open_mpi(name);
  if (name == "mpi") return flavor;
  if (name == "mpi-inplace") {
    flavor.is_in_place = true;
    return flavor;
  }
  if (name == "mpi-sm") {
    // Off by default; nothing else of Open MPI 4.1 has a priority above 50.
    flavor.arguments = {"--mca", "coll_sm_priority", "100"};
    flavor.is_for_nodes = false;
    return flavor;
  }
  if (name == "mpich") {
    // Under Slurm, hydra would ask srun.
    return {name,
            "mpiexec.mpich",
            "chainmail-bench-mpich",
            "mpich libmpich-dev",
            {"-launcher", "fork"},
            false,
            false};
  }
  throw InvalidArgument("no MPI is called \"" + name + "\"");
}

std::vector<std::string> mpiexec_command(const MpiFlavor& flavor, const std::string& program,
                                         const std::string& token,
                                         const std::vector<std::string>& hosts,
                                         const std::string& remote_shell) {
  std::vector<std::string> words = {flavor.mpiexec, "-n", std::to_string(hosts.size())};
  if (flavor.mpiexec == "mpiexec.openmpi") {
    // The processes bind themselves, to the cores of the benchmark's ranks. Open MPI itself finds
    // out whether there are more ranks than cores, and yields then.
    words.insert(words.end(), {"--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"});
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (std::any_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h != hosts[0]; })) {
      words.insert(words.end(), {"--host", host_list(hosts)});
      if (!remote_shell.empty()) {
        words.insert(words.end(), {"--mca", "plm_rsh_agent", remote_shell});
      }
    }
  }
  words.insert(words.end(), flavor.arguments.begin(), flavor.arguments.end());
  words.push_back(program);
  words.push_back(token);
  return words;
}

bool is_of_starter(std::string_view variable) {
  constexpr std::array<std::string_view, 9> kPrefixes = {"CHAINMAIL_JOB_FD",
                                                         "OMPI_COMM_WORLD_",
                                                         "OMPI_MCA_ess_",
                                                         "OMPI_MCA_orte_",
                                                         "OMPI_MCA_pmix",
                                                         "PMIX_",
                                                         "PMI_",
                                                         "HYDRA",
                                                         "SLURM_"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

}  // namespace chainmail::bench
