// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The process groups that are measured against each other: both as torch's users get them, over
// the same ranks of one job.
//
// Collective: every rank makes the same groups in the same order.

#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "tools/bench/contestants/contestant.h"

namespace chainmail::bench {

struct Candidate {
  std::string name;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::string wire = "native";  ///< of its means between nodes
};

/// `name` must be new in the job.
[[nodiscard]] Candidate make_ours(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                                  const std::string& algorithm, const std::string& wire,
                                  const std::string& name = "chainmail");

/// torch's own Gloo group: on loopback when all ranks are on one node, else on GLOO_SOCKET_IFNAME,
/// else on the interface that torch chooses. `name` must be new in the job.
[[nodiscard]] Candidate make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                                  const std::string& name = "gloo");

/// torch's own NCCL group, for tensors on GPUs. `name` must be new in the job. Throws
/// InvalidArgument where CUDA or our library that opens it is missing.
[[nodiscard]] Candidate make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                                  const std::string& name = "nccl");

}  // namespace chainmail::bench
