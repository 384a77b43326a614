// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which names and addresses are this machine's, and how many processors it gives this process.
// Reads the kernel's tables; thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "launcher/job/host.h"

namespace chainmail::launch {

/// How others reach this machine: addresses of interfaces that are up, but for loopback and IPv6's
/// link-local ones, with commas, the best first. 127.0.0.1 without a network, where ranks still
/// talk to each other.
[[nodiscard]] std::string addresses_for_others();

/// A port of TCP that is free now, and very likely for a while; 0: there is none.
[[nodiscard]] std::uint16_t free_port();

/// What gethostname says; "unknown" where it says nothing.
[[nodiscard]] std::string own_host_name();

/// As many as this process may run on.
[[nodiscard]] int usable_processors();

/// True for equal names, and for one that is the other's first label: n1 and n1.example.org.
[[nodiscard]] bool is_same_name(const std::string& one, const std::string& other);

/// True for a name of machine `own` that is the beginning, up to a dot, of one that lines of an
/// /etc/hosts give to an own address: in a pod of Kubernetes, whose line ends in the cluster's
/// domain, "pod.service" and "pod.service.namespace.svc". Pure.
[[nodiscard]] bool names_itself(const std::string& name, const std::string& own,
                                const std::string& hosts,
                                const std::function<bool(const std::string&)>& is_own);

/// True for a host that the agent can be started on without a remote shell: localhost, this
/// machine's own name, also as its /etc/hosts continues it, or one of its addresses, and neither
/// user nor port given.
[[nodiscard]] bool is_this_machine(const Host& host);

}  // namespace chainmail::launch
