// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp_comm.h"

#include <utility>

#include "ops/comm/p2p/p2p_comm.h"

namespace chainmail::ops {

std::unique_ptr<Comm> create_tcp_comm(std::shared_ptr<Rendezvous> rendezvous, TcpOptions tcp,
                                      const P2pOptions& options) {
  return std::make_unique<P2pComm>(
      std::make_unique<TcpTransport>(std::move(rendezvous), std::move(tcp)), options);
}

}  // namespace chainmail::ops
