// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How many GPUs a Slurm job has on each of its nodes, where srun must be told. It gives a step what
// the job asked for in the same words: --gpus=4 for a whole job asks each agent's node for four,
// --gpus-per-task=1 gives the one task of that step one.
//
// Call from the main thread (launcher/process/fork_exec.h).

#pragma once

#include <map>
#include <string>
#include <string_view>

#include "launcher/hosts/schedulers/schedulers.h"

namespace chainmail::launch {

/// What `scontrol show job -d` says: "Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)".
/// Nodes with other resources alone have 0; lines that cannot be read are passed over.
[[nodiscard]] std::map<std::string, int> parse_slurm_gpus(std::string_view text);

/// Asks scontrol, if the job asked for GPUs in words that mean another number for a single step,
/// and gives the hosts of `set` their `gpus`; otherwise does nothing. What goes wrong is a note.
void count_slurm_gpus(const Environment& variables, HostSet& set);

}  // namespace chainmail::launch
