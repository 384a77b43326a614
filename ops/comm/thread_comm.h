// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A Comm between ranks that are threads of one process: for tests, and for programs that use
// threads as ranks.

#pragma once

#include <memory>

#include "ops/comm/comm.h"
#include "ops/comm/p2p/plan.h"
#include "ops/comm/thread_transport.h"

namespace chainmail::ops {

/// This rank's end. All ranks share `hub`; it may be dropped before the Comms.
[[nodiscard]] std::unique_ptr<Comm> create_thread_comm(std::shared_ptr<ThreadHub> hub, int rank,
                                                       const P2pOptions& options = {});

}  // namespace chainmail::ops
