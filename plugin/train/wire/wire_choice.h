// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// As what gradients should travel between nodes (wire = "auto"), from what some steps have taken:
// the format that rounds least of those that make a step near the shortest.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/types.h"

namespace chainmail::internal {

/// MultiNodeOptimizerOptions::wire that leaves it to choose_wire().
inline constexpr const char* kAutoWire = "auto";

/// Of one rank, sums over `steps`, in seconds.
struct WireTimes {
  std::int64_t steps = 0;
  double step = 0;       ///< from one to the next
  double waited = 0;     ///< of that, for exchanges
  double travelled = 0;  ///< from the first bucket's start until all were there
};

/// Of steps whose `bytes` of gradients travelled as `now`: what those to come should travel as.
[[nodiscard]] ops::WireFormat choose_wire(const WireTimes& times, std::size_t bytes,
                                          ops::WireFormat now);

/// "steps of 251 ms wait 180 ms for 26214400 bytes of gradients"
[[nodiscard]] std::string describe(const WireTimes& times, std::size_t bytes);

}  // namespace chainmail::internal
