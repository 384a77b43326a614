// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/starters.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "launcher/job/environment.h"

namespace chainmail::launch {
namespace {

// They are options of srun that sbatch, salloc and users set for programs.
constexpr std::array kNotForStarters = {
    // The agent's frames are binary and use all three streams.
    "SLURM_LABELIO", "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE",
    // The step of an agent may use every processor that the job has on the node; each of these
    // means or implies --exact.
    "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
    "SLURM_THREADS_PER_CORE", "SLURM_HINT",
    // And every GPU; these count per task or per job, while the step is one task on one node.
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU", "SLURM_CPUS_PER_GPU", "SLURM_GPU_BIND", "SLURM_GRES",
    "SLURM_TRES_PER_TASK"};

std::string starter_of(Scheduler scheduler) {
  switch (scheduler) {
    case Scheduler::kGridEngine:
      // Not -nostdin, which Open MPI adds: our channel is standard input.
      return "qrsh -inherit -V";
    case Scheduler::kSlurm:
      // One task that may use all that the job has on the node, beside other steps; what ranks are
      // bound to is the agent's business. Without --unbuffered what the agent writes waits for a
      // line's end, which its frames do not have.
      return "srun --nodes=1 --ntasks=1 --nodelist=%h --overlap --cpu-bind=none --mpi=none --quiet "
             "--unbuffered";
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
  const auto path = value_of(current_environment(), "PATH");
  const std::vector<std::string> files = files_in_path(path.value_or(""), program);
  return path && std::any_of(files.begin(), files.end(), [](const std::string& file) {
           return access(file.c_str(), X_OK) == 0;
         });
}

std::vector<std::string> starter_environment() {
  Environment variables = current_environment();
  for (const char* name : kNotForStarters) variables.erase(name);
  variables.erase("SLURM_UNBUFFEREDIO");
  variables.emplace("SLURM_UNBUFFEREDIO", "1");
  return entries_of(variables);
}

bool is_srun(const std::string& program) {
  return program.substr(program.rfind('/') + 1) == "srun";
}

bool is_scheduler_starter(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  return is_srun(name) || name == "qrsh" || name == "blaunch";
}

std::string default_remote_shell(Scheduler scheduler, const std::vector<Host>& hosts,
                                 const std::function<bool(const std::string&)>& installed) {
  if (std::any_of(hosts.begin(), hosts.end(), is_for_ssh)) return "ssh";
  const std::string starter = starter_of(scheduler);
  return installed(starter.substr(0, starter.find(' '))) ? starter : "ssh";
}

}  // namespace chainmail::launch
