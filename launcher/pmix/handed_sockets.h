// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gives libpmix its connections from the agent instead of from a port of its own.
//
// libpmix 4.2 can only listen on TCP, and reads what a new connection says in the thread that
// serves everybody: one silent stranger stops MPI for the whole node. So the agent listens, looks
// at what callers say, and hands over those who belong to the job. For libpmix that must look like
// a listening socket; handed_sockets.cc defines bind, listen, getsockname and accept, which the
// dynamic linker takes from the program before the C library, and treats that one socket apart.
//
// Call use_handed_sockets() before PMIx_server_init, from one thread.

#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace chainmail::launch {

/// `handoff` receives descriptors as SCM_RIGHTS messages of one byte; `port` is where the agent
/// listens.
void use_handed_sockets(internal::UniqueFd handoff, std::uint16_t port);

/// Whether libpmix has taken the handoff socket for its listening socket.
[[nodiscard]] bool handoff_is_in_use() noexcept;

}  // namespace chainmail::launch
