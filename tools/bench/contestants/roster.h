// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The contestants by the names that users type.
//
// Collective: every rank asks for the same ones in the same order.

#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "plugin/job/world.h"
#include "tools/bench/contestants/contestant.h"
#include "tools/bench/measure/control.h"

namespace chainmail::bench {

struct RosterOptions {
  bool is_engine = false;          ///< ours without c10d
  bool uses_group_memory = false;  ///< ours, with is_engine
  std::string algorithm = "auto";
  std::string wire = "native";
  std::vector<std::string> against;  ///< of contestant_names()
  std::string remote_shell;          ///< for MPI's processes on other nodes
  c10::Device device = c10::kCPU;    ///< of this rank's tensors
};

/// "mpi,mpich" in words; "none" and "" are none. Throws InvalidArgument for unknown names.
[[nodiscard]] std::vector<std::string> parse_contestants(const std::string& list);

/// Whether the contestant `name` is ours on a wire that rounds.
[[nodiscard]] bool is_rounding_wire(const std::string& name);

/// Throws InvalidArgument for contestants that do not take tensors of that place: torch's Gloo, MPI
/// and the engine's call reduce in host memory, torch's NCCL on GPUs.
void check_contestants(const RosterOptions& options, bool is_on_gpu);

/// Ours first, then those it is measured against. Throws InvalidArgument for those that cannot be
/// had here.
[[nodiscard]] std::vector<std::unique_ptr<Contestant>> make_contestants(
    const RosterOptions& options, World& world, Control& control);

}  // namespace chainmail::bench
