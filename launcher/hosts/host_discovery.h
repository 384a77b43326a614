// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --host-discovery: a program that prints the hosts, as Horovod's and Kubernetes' MPI operator's
// scripts do.
//
// Call from the main thread (launcher/fork_exec.h).

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/host_source.h"

namespace chainmail::launch {

inline constexpr std::chrono::seconds kDiscoveryLimit{30};

/// Runs `command` (program and arguments, no shell) and reads what it prints as a hostfile. hosts()
/// throws HostsError when it cannot be run, fails, or has not ended after `limit`; it and what it
/// started are gone then.
[[nodiscard]] std::unique_ptr<HostSource> discovery_source(
    std::vector<std::string> command, const HostfileRules& rules = {},
    std::chrono::milliseconds limit = kDiscoveryLimit);

}  // namespace chainmail::launch
