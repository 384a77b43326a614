// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which names and addresses are this machine's, and how many processors it gives this process.
// Reads the kernel's tables; thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

struct OwnAddress {
  std::string text;  ///< as inet_ntop writes it
  bool is_ipv6 = false;
  /// Of an interface that is up, not loopback's, and no link-local one of IPv6: others can use it.
  bool is_for_others = false;
};
[[nodiscard]] std::vector<OwnAddress> own_addresses();

/// What gethostname says; "unknown" where it says nothing.
[[nodiscard]] std::string own_host_name();

/// As many as this process may run on.
[[nodiscard]] int usable_processors();

/// True for equal names, and for one that is the other's first label: n1 and n1.example.org.
[[nodiscard]] bool is_same_name(const std::string& one, const std::string& other);

/// True for a host that the agent can be started on without a remote shell: localhost, this
/// machine's own name or one of its addresses, and neither user nor port given.
[[nodiscard]] bool is_this_machine(const Host& host);

}  // namespace chainmail::launch
