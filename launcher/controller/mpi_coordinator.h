// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's part in MPI: what agents need to serve it, and what the ranks' MPI libraries
// tell about themselves. Where they meet is MpiExchange.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/controller/state/agents.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

class MpiCoordinator {
 public:
  struct Callbacks {
    /// MPI as a whole fails on a host: the job cannot go on.
    std::function<void(const std::string& cause)> fail;
    /// What `node` says of one of its ranks, which may be any number.
    std::function<void(std::uint32_t node, std::uint32_t rank, int exit_code,
                       const std::string& cause)>
        fail_rank;
    /// chainmail-pmix is not installed there; send it.
    std::function<void(std::uint32_t node)> send_helper;
  };

  /// `mode` is not kNone. `sends_helper`: there is a chainmail-pmix here that could be sent.
  MpiCoordinator(MpiMode mode, bool sends_helper, Agents& agents,
                 std::vector<std::uint32_t> node_of_rank, Callbacks callbacks);

  /// For the agent of `node`; nodes and names are in the job's table.
  [[nodiscard]] MpiOrder order_for(std::uint32_t node) const;
  /// Different from each other, as libpmix can carry them.
  const std::vector<std::string>& node_names() const noexcept { return node_names_; }
  /// A kMpi frame. Throws SystemError(EPROTO).
  void on_frame(std::uint32_t node, const internal::Frame& frame);

 private:
  void handle(std::uint32_t node, MpiMessage message);
  void send(std::uint32_t node, const MpiMessage& message);
  void send_to_all(const std::set<std::uint32_t>& nodes, const MpiMessage& message);

  Agents& agents_;
  Callbacks callbacks_;
  MpiOrder order_;
  std::vector<std::string> node_names_;
  std::vector<MpiPieces> pieces_;  // of each node
  MpiExchange exchange_;
};

}  // namespace chainmail::launch
