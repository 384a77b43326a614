// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Keeps a group that is to be encrypted or authenticated from sending anything in the clear.
//
// Pure functions; any thread.

#pragma once

#include <string>

#include "ops/engine/group.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// Throws InvalidArgument when `carrier`, which protects nothing, would carry data of the group
/// between nodes although its options ask for protection. `instead`: what to do, "use ...".
void check_carrier(const GroupOptions& options, const Topology& topology,
                   const std::string& carrier, const std::string& instead);

}  // namespace chainmail::ops
