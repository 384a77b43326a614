// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts file of an elastic job, which people and programs change while it is read.
//
// Pure functions, thread-safe.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_text.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

/// As parse_hostfile(), and stricter: a host that is named twice, and slots that only the host
/// knows
/// ("n1:*") are refused, and so is a last line without an end, which somebody may still be writing.
/// No hosts at all are an empty list. Throws HostfileError.
[[nodiscard]] std::vector<Host> parse_watched_hosts(std::string_view text,
                                                    const std::string& where);

/// Refuses what parse_watched_hosts() refuses of hosts that were read otherwise. Throws HostsError.
void check_elastic_hosts(const std::vector<Host>& hosts, const std::string& where);

}  // namespace chainmail::launch
