// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job whose ranks are threads of this process, over the real engine.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/job/world.h"

namespace chainmail::testing {

/// Runs `body` as every rank of a job with nodes of the given sizes ({2, 2}, {3, 1}) and returns
/// each rank's error message, empty where it returned. Ranks on different nodes use TCP.
std::vector<std::string> run_ranks(const std::vector<int>& node_sizes,
                                   const std::function<void(std::shared_ptr<World>)>& body);

/// As above with a communicator per rank; adds a test failure for every rank that throws.
void with_communicator(const std::vector<int>& node_sizes, const std::string& name,
                       const CommunicatorOptions& options,
                       const std::function<void(std::shared_ptr<Communicator>)>& body);

/// The same, returning the errors.
std::vector<std::string> errors_with_communicator(
    const std::vector<int>& node_sizes, const std::string& name,
    const std::function<void(std::shared_ptr<Communicator>)>& body);

}  // namespace chainmail::testing
