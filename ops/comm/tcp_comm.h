// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A Comm over TCP. Each rank opens one listener and publishes its address in the rendezvous; two
// ranks connect when one first needs the other, and prove to each other that they know the job's
// secret. Payloads carry checksums; where TcpOptions ask for it, all is encrypted or authenticated.

#pragma once

#include <memory>

#include "ops/comm/comm.h"
#include "ops/comm/p2p/plan.h"
#include "ops/comm/tcp/tcp_transport.h"
#include "ops/engine/rendezvous.h"

namespace chainmail::ops {

/// This rank's end; needs no other rank to return. `tcp.group` must be unique in the job and
/// generation. Throws InvalidArgument (no such interface) and SystemError.
[[nodiscard]] std::unique_ptr<Comm> create_tcp_comm(std::shared_ptr<Rendezvous> rendezvous,
                                                    TcpOptions tcp, const P2pOptions& options = {});

}  // namespace chainmail::ops
