// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Hosts as schedulers and clouds tell them: variables of the environment and files that these name.
// What a scheduler says is trusted no more than a hostfile: HostfileError with line and column.
//
// Pure functions over texts, thread-safe; only scheduler_hosts reads files, and count_slurm_gpus
// runs a program: call it from the main thread (launcher/process/fork_exec.h).

#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/environment.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

/// Grid Engine's `$PE_HOSTFILE`: "host slots queue processors" per line; a host may stand there
/// once per queue.
[[nodiscard]] std::vector<Host> parse_pe_hostfile(std::string_view text, const std::string& where);

/// "tux[1-3,07-09],rack[0-1]n[00-15]": the names in order, zeros kept.
[[nodiscard]] std::vector<std::string> expand_slurm_nodes(std::string_view text,
                                                          const std::string& where);
/// "2(x3),1" is 2, 2, 2, 1.
[[nodiscard]] std::vector<int> expand_slurm_counts(std::string_view text, const std::string& where);
/// True for what `srun -n 1` starts: of its job it is told the nodes, but not the tasks.
[[nodiscard]] bool is_in_slurm_step_of_one_task(const Environment& variables);
/// The nodes of a Slurm job. Slots are tasks where the user asked for tasks; otherwise every node
/// has the one task that srun would start, or as many as --per-node says, up to its processors.
[[nodiscard]] std::vector<Host> slurm_hosts(const Environment& variables);

/// How many GPUs a Slurm job has on each of its nodes, where srun must be told: it gives a step
/// what the job asked for in the same words. --gpus=4 for a whole job asks each agent's node for
/// four,
/// --gpus-per-task=1 gives the one task of that step one.
/// What `scontrol show job -d` says: "Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)".
/// Nodes with other resources alone have 0; lines that cannot be read are passed over.
[[nodiscard]] std::map<std::string, int> parse_slurm_gpus(std::string_view text);

/// Asks scontrol, if the job asked for GPUs in words that mean another number for a single step,
/// and gives the hosts of `set` their `gpus`; otherwise does nothing. What goes wrong is a note.
void count_slurm_gpus(const Environment& variables, HostSet& set);

/// PBS's and Torque's `$PBS_NODEFILE`: a host per line, once per slot. With `slots_per_line`
/// ($PBS_PPN) every line stands for that many.
[[nodiscard]] std::vector<Host> parse_pbs_nodefile(std::string_view text, const std::string& where,
                                                   int slots_per_line = 1);

/// LSF's `LSB_MCPU_HOSTS`: "hostA 5 hostB 2".
[[nodiscard]] std::vector<Host> parse_lsf_counts(std::string_view text, const std::string& where);
/// LSF's `LSB_HOSTS` (blanks) and `$LSB_DJOB_HOSTFILE` (lines): a host once per slot.
[[nodiscard]] std::vector<Host> parse_lsf_names(std::string_view text, const std::string& where);

/// Azure Batch's `AZ_BATCH_HOST_LIST` (',') or `AZ_BATCH_NODE_LIST` (';').
[[nodiscard]] std::vector<Host> parse_azure_list(std::string_view text, const std::string& where,
                                                 char separator);
/// Azure Batch AI's `AZ_BATCHAI_WORKER_HOSTS`: "10.0.0.4:2223,10.0.0.5:2222", where the numbers are
/// ports of the program and not of ssh.
[[nodiscard]] std::vector<Host> parse_batch_ai_workers(std::string_view text,
                                                       const std::string& where);

/// SageMaker's `SM_HOSTS`: a list of names in JSON.
[[nodiscard]] std::vector<Host> parse_sagemaker_hosts(std::string_view text,
                                                      const std::string& where);
/// SageMaker's resourceconfig.json.
[[nodiscard]] std::vector<Host> parse_sagemaker_config(std::string_view text,
                                                       const std::string& where);

/// The hosts of the first scheduler whose variables are present: Grid Engine, Slurm, PBS, LSF,
/// SageMaker, Azure Batch, Batch AI. `root` stands before the one path that is fixed,
/// /opt/ml/input/config/resourceconfig.json. Throws UsageError for a file that cannot be read.
[[nodiscard]] std::optional<HostSet> scheduler_hosts(const Environment& variables,
                                                     const std::string& root = "");

/// "Grid Engine", "Slurm", ...; "" for kNone.
[[nodiscard]] const char* to_string(Scheduler scheduler) noexcept;

}  // namespace chainmail::launch
