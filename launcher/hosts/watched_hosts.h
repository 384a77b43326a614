// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts file of an elastic job, which people and programs change while it is read.
//
// Pure functions, thread-safe.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/hostfile.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

/// A host that is named twice, and slots that only the host knows ("n1:*"), are refused.
inline constexpr HostfileRules kWatchedHostsRules{.refuses_repeats = true, .needs_numbers = true};

/// As parse_hostfile() with kWatchedHostsRules, and stricter: a last line without an end is
/// refused, since somebody may still be writing it. No hosts at all are an empty list. Throws
/// HostfileError.
[[nodiscard]] std::vector<Host> parse_watched_hosts(std::string_view text,
                                                    const std::string& where);

}  // namespace chainmail::launch
