// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/thread_comm.h"

#include <utility>

#include "ops/comm/p2p/p2p_comm.h"

namespace chainmail::ops {

std::unique_ptr<Comm> create_thread_comm(std::shared_ptr<ThreadHub> hub, int rank,
                                         const P2pOptions& options) {
  return std::make_unique<P2pComm>(std::make_unique<ThreadTransport>(std::move(hub), rank),
                                   options);
}

}  // namespace chainmail::ops
