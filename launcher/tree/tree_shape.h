// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who starts whose agent. Up to 64 hosts the launcher starts all of them itself; above, agents
// start further ones, so that no machine has hundreds of logins to do. Pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace chainmail::launch {

/// Hosts that the launcher starts itself unless a width is asked for.
inline constexpr std::size_t kMostDirectHosts = 64;
/// No machine carries more unless a width is asked for: as often does each send what all hosts get,
/// so that it is the same for a thousand hosts as for a few hundred.
inline constexpr std::uint32_t kMostChildren = 16;

/// How many agents each machine starts; 0: the launcher starts all. `asked` is --tree (0: no tree;
/// nothing: auto), `remote_hosts` do not count this machine, `goes_on`: the remote shell can be
/// expected to work on the hosts themselves as it does here.
[[nodiscard]] std::uint32_t tree_width(std::optional<std::uint32_t> asked, std::size_t remote_hosts,
                                       bool goes_on);

/// For each node the one that starts it and carries its bytes, always an earlier one; nothing: the
/// launcher itself. This machine's own agent carries nobody. Of the others the first `width` are
/// the launcher's, the next `width` the first one's, and so on.
[[nodiscard]] std::vector<std::optional<std::uint32_t>> parents_of(
    const std::vector<bool>& is_this_machine, std::uint32_t width);

}  // namespace chainmail::launch
