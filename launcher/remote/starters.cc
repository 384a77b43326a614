// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/starters.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace chainmail::launch {
namespace {

std::string starter_of(Scheduler scheduler, const Variables& variables) {
  switch (scheduler) {
    case Scheduler::kGridEngine:
      // Not -nostdin, which Open MPI adds: our channel is standard input.
      return "qrsh -inherit -V";
    case Scheduler::kSlurm:
      // A step is of one component of a heterogeneous job, and does not reach nodes of others.
      if (value_of(variables, "SLURM_HET_SIZE").value_or("1") != "1") break;
      // One task that may use all that the job has on the node, beside other steps; what ranks are
      // bound to is the agent's business.
      return "srun --nodes=1 --ntasks=1 --nodelist=%h --overlap --cpu-bind=none --mpi=none --quiet";
    case Scheduler::kLsf:
      return "blaunch";
    case Scheduler::kPbs:
      // What pbsdsh starts reads /dev/null and writes to the job's output file.
    case Scheduler::kNone:
    case Scheduler::kSageMaker:
    case Scheduler::kAzureBatch:
      break;
  }
  return "ssh";
}

bool is_for_ssh(const Host& host) { return host.port.has_value() || !host.user.empty(); }

}  // namespace

bool is_in_path(const std::string& program) {
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    if (access((path.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

bool is_scheduler_starter(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  return name == "srun" || name == "qrsh" || name == "blaunch";
}

std::string default_remote_shell(Scheduler scheduler, const std::vector<Host>& hosts,
                                 const Variables& variables,
                                 const std::function<bool(const std::string&)>& installed) {
  if (std::any_of(hosts.begin(), hosts.end(), is_for_ssh)) return "ssh";
  const std::string starter = starter_of(scheduler, variables);
  return installed(starter.substr(0, starter.find(' '))) ? starter : "ssh";
}

}  // namespace chainmail::launch
