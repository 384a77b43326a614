// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The c10d way in: a c10d::ProcessGroup whose backend is Chainmail, for torch's own Reducer,
// functional collectives and anything else that takes a process group.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chainmail/export.h>

namespace chainmail {

/// How a process group communicates. Every member has the same value on all ranks.
struct BackendOptions {
  std::string algorithm =
      "auto";  ///< auto, flat, hierarchical, two_dimensional, single_node, naive
  /// What means (AVG) of float32 travel as between nodes: native, float16, bfloat16; on CPUs int8
  /// and int4, which lose about 1 and 10 % of what they round, in each call anew. All else is
  /// never rounded, unless an operator of torch.ops.chainmail says so itself.
  std::string wire = "native";
  std::chrono::milliseconds timeout = std::chrono::minutes{10};  ///< without progress
  std::string group_name = "chainmail";  ///< unique in the job; also the c10d name
  /// Labels of the ranks' nodes (equal label = same node); empty: found out by exchanging them.
  std::vector<std::string> node_ids;
  std::string cross = "tcp";  ///< what joins the nodes: tcp, or mpi under mpiexec
  /// The members' ranks in the job, in the order of their ranks in the group: what messages and
  /// errors name. Empty: what the launcher, torchrun, mpirun ... say, else as in the group.
  std::vector<int> global_ranks;
};

/// Creates a process group over `store` and registers it under options.group_name, so that
/// functional collectives and the operators of torch.ops.chainmail find it. Collective over all
/// ranks. CPU and CUDA tensors. Keep the returned pointer: the registry holds it weakly.
/// @throws InvalidArgument  unknown algorithm, wire or cross; rank or size out of range; a timeout
///                          that is not positive; MPI asked for where it cannot be used
/// @throws TimeoutError     a rank did not come within options.timeout
[[nodiscard]] CHAINMAIL_API c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const BackendOptions& options = {});

/// The same over all ranks of the job that this process belongs to, over the job's store.
/// Throws what the other one and make_job_store() throw.
[[nodiscard]] CHAINMAIL_API c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    const BackendOptions& options = {});

/// The store of the job that this process belongs to: the launcher's socket, torchrun's or
/// mpirun's or srun's rendezvous, or an in-process one when alone.
/// @throws InvalidArgument  the environment names a job but is incomplete
[[nodiscard]] CHAINMAIL_API c10::intrusive_ptr<c10d::Store> make_job_store(
    std::chrono::milliseconds timeout = std::chrono::minutes{5});

}  // namespace chainmail
