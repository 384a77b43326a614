// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Why a server that ranks were told of has not answered.
//
// Thread-safe (no state).

#pragma once

#include <cstdint>
#include <string>

#include "base/deadline.h"

namespace chainmail::internal {

struct Reachability {
  bool takes_connections = false;
  std::string problem;  ///< a sentence
};

/// Connects to rank 0's store at `host`, a name or an address, to tell apart what is wrong: a name
/// that cannot be resolved, a port where nobody listens, a host that is silent or cannot be
/// reached, a process that does not answer. Returns by the deadline.
[[nodiscard]] Reachability why_no_answer(const std::string& host, std::uint16_t port,
                                         const Deadline& deadline);

}  // namespace chainmail::internal
