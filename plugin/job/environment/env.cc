// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/env.h"

#include <cstdlib>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::internal {
namespace {

constexpr EnvVariable kVariables[] = {
    {"CHAINMAIL_LOG", "user"},
    {"CHAINMAIL_LOCAL", "user"},
    {"CHAINMAIL_TUNING", "user"},
    {"CHAINMAIL_CROSS", "user"},
    {"CHAINMAIL_ENCRYPT", "user, launcher"},
    {"CHAINMAIL_INTERFACE", "user"},
    {"CHAINMAIL_SHARDS", "user, launcher"},
    {"CHAINMAIL_TIMEOUT", "user"},
    {"CHAINMAIL_NODE_ID", "user"},
    {"CHAINMAIL_JOB_FD", "launcher"},
    {"CHAINMAIL_GENERATION", "launcher"},
    {"RANK", "launcher, torchrun"},
    {"WORLD_SIZE", "launcher, torchrun"},
    {"MASTER_ADDR", "torchrun, user"},
    {"MASTER_PORT", "torchrun, user"},
    {"TORCHELASTIC_RUN_ID", "torchrun"},
    {"TORCHELASTIC_RESTART_COUNT", "torchrun"},
    {"TORCHELASTIC_USE_AGENT_STORE", "torchrun"},
    {"OMPI_COMM_WORLD_RANK", "mpirun"},
    {"OMPI_COMM_WORLD_SIZE", "mpirun"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun"},
    {"OMPI_MCA_ess_base_jobid", "mpirun"},
    {"OMPI_MCA_orte_hnp_uri", "mpirun"},
    {"OMPI_MCA_orte_local_daemon_uri", "mpirun"},
    {"PMIX_NAMESPACE", "mpirun"},
    {"PMIX_RANK", "mpirun, srun"},
    {"PMI_RANK", "mpiexec, srun"},
    {"PMI_SIZE", "mpiexec"},
    {"MPI_LOCALNRANKS", "mpiexec"},
    {"MPI_LOCALRANKID", "mpiexec"},
    {"SLURM_PROCID", "srun"},
    {"SLURM_NTASKS", "srun"},
    {"SLURM_STEP_NUM_TASKS", "srun"},
    {"SLURM_STEP_NUM_NODES", "srun"},
    {"SLURM_JOB_ID", "srun"},
    {"SLURM_STEP_ID", "srun"},
    {"SLURM_STEP_NODELIST", "srun"},
    {"JOB_COMPLETION_INDEX", "kubernetes"},
    {"SM_HOSTS", "sagemaker"},
    {"SM_CURRENT_HOST", "sagemaker"},
    {"TRAINING_JOB_NAME", "sagemaker"},
    {"SSH_CONNECTION", "sshd"},
};

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

std::span<const EnvVariable> known_variables() noexcept { return kVariables; }

std::optional<long long> read_integer(const Environment& environment, std::string_view name,
                                      long long low, long long high) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = whole_number<long long>(*text);
  if (!value || *value < low || *value > high) {
    throw InvalidArgument("environment variable " + std::string(name) + "=\"" + *text +
                          "\" is not a number from " + std::to_string(low) + " to " +
                          std::to_string(high));
  }
  return value;
}

}  // namespace chainmail::internal
