// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who stays when members accuse each other.
//
// Pure functions; any thread.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership {

/// Member `from` could not reach `peer`; numbers are places in the world.
struct Accusation {
  std::uint32_t from = 0;
  std::uint32_t peer = 0;
};

/// The largest set of the members of whom none accuses another, in order; `hosts` has the host of
/// each. Among equal ones the one with more members that accuse anybody, since those are known to
/// live; then the one that takes from fewer hosts, since networks cut off hosts; then the one with
/// the older members. Exact for what networks do (a few members, or one node, cut off); a search
/// that would take more than some thousand steps ends with the best set found.
[[nodiscard]] std::vector<std::uint32_t> largest_reaching_set(
    std::span<const HostId> hosts, std::span<const Accusation> accusations);

}  // namespace chainmail::membership
