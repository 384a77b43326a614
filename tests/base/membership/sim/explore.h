// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Visits every state that a small job can come to: breadth first, in the order of their distance
// from its start, so that the path to a violation is as short as it can be; or depth first, which
// keeps a few hundred jobs in memory instead of millions.
//
// One thread. A state is known by 64 bits of hash: of n states two are taken for one with a
// probability of n^2 / 2^65, 3e-6 for ten millions.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/base/membership/sim/simulation.h"

namespace chainmail::membership::sim {

/// How often each of these may happen, at any moment.
struct Faults {
  std::uint8_t crashes = 0;
  std::uint8_t stops = 0;      ///< for ever, unless the launcher ends it
  std::uint8_t cuts = 0;       ///< of the data network, from one host to another
  std::uint8_t newcomers = 0;  ///< a line is added to the hosts file
  std::uint8_t drains = 0;     ///< the last line is removed from it
  std::uint8_t launcher = 0;   ///< deaths of the launcher; the job is not resumed
};

enum class Order { kBreadthFirst, kDepthFirst };

struct ExploreResult {
  std::string violation;  ///< empty: none
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint32_t depth = 0;   ///< breadth first: of the last state from the start
  bool is_complete = false;  ///< otherwise the limit was reached
  std::vector<Choice> path;  ///< to the violation
};

/// At most `most_states`. Beside what a Simulation checks: from every state the job can come to an
/// end without a further fault (complete searches only).
[[nodiscard]] ExploreResult explore(const Setup& setup, const Faults& faults,
                                    std::uint64_t most_states, Order order = Order::kBreadthFirst);

}  // namespace chainmail::membership::sim
