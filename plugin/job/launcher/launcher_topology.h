// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher's welcome says about this rank's place: which ranks share a node, and which of
// this node's addresses the others reach.
//
// Pure functions over the welcome, the environment and this machine's interfaces.

#pragma once

#include <string>

#include "base/job/job_protocol.h"
#include "ops/topology.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/job_info.h"

namespace chainmail::internal {

/// The nodes as the launcher counts them. Throws InvalidArgument when RANK or WORLD_SIZE say
/// otherwise than the launcher, that is, when another starter inside one of its ranks started this
/// process.
[[nodiscard]] ops::Topology launcher_topology(const Welcome& welcome, const JobInfo& info);

/// The address for traffic between nodes: the one by which ssh from another node of the job reached
/// this node. Empty, which leaves the choice to the socket, when there is none: on the launcher's
/// own node (how its user logged in says nothing about the job's network), under another remote
/// shell, or when this process does not have the address (a container with its own network).
[[nodiscard]] std::string launcher_interface(const Welcome& welcome,
                                             const Environment& environment);

}  // namespace chainmail::internal
