// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a group's ranks are joined: what makes the Comms of its collectives and the Transports of its
// sends and receives.
//
// The functions may be called from several threads at once, for different requests.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/comm/comm.h"
#include "ops/comm/transport.h"
#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

class MpiWorld;

/// Which ranks a new Comm or Transport joins, and what it needs for that.
struct CommRequest {
  std::string name;                ///< prefix of its keys: "local/0", "cross/1", "flat"
  int rank = 0;                    ///< this rank's number in the Comm
  std::vector<int> ranks;          ///< its members as ranks of the group
  std::vector<int> global_ranks;   ///< the same as ranks of the job
  std::vector<std::string> hosts;  ///< of each, as far as known; for messages only
  bool on_one_node = false;        ///< all members, by the topology
  std::shared_ptr<Rendezvous> rendezvous;
};

/// How ranks of one node and ranks anywhere are joined, for collectives and for sends and receives.
/// Tests put their own in.
struct CommFactory {
  using Make = std::function<std::unique_ptr<Comm>(const CommRequest&, const GroupOptions&,
                                                   const OpContext&)>;
  using MakeTransport =
      std::function<std::unique_ptr<Transport>(const CommRequest&, const GroupOptions&)>;
  Make on_node;
  Make anywhere;
  MakeTransport transport_on_node;  ///< empty: as anywhere
  MakeTransport transport_anywhere;
};

/// Shared memory (or TCP, see GroupOptions) inside a node; between nodes TCP, or MPI where `mpi` is
/// given.
[[nodiscard]] CommFactory default_comm_factory(const GroupOptions& options,
                                               std::shared_ptr<MpiWorld> mpi = nullptr);

}  // namespace chainmail::ops
