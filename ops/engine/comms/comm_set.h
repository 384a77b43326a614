// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The Comms of one group, each made when an operation first needs it.
//
// local(), cross() and flat() are for the thread that runs an operation; abort() is for any
// thread. Making a Comm is collective over its ranks.

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/comm/comm.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/comms/comm_factory.h"
#include "ops/topology.h"

namespace chainmail::ops {

class CommSet {
 public:
  CommSet(int rank, const Topology& topology, const GroupOptions& options,
          std::vector<int> global_ranks, CommFactory factory,
          std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<FailureState> failure);

  /// Null when this rank is alone on its node.
  Comm* local(const OpContext& context);
  /// Null when the group has one node, or no peer has this local rank.
  Comm* cross(const OpContext& context);
  /// All ranks; the local or the cross Comm where that has the same members.
  Comm* flat(const OpContext& context);
  /// flat() where that needs no making, else null.
  Comm* flat_if_made() const noexcept { return flat_place_->comm.get(); }

  /// Ends whatever waits in a Comm, now and later. Any thread.
  void abort() noexcept;
  /// Destroys the Comms. Nothing may run in them.
  void close() noexcept;
  /// Gives the Comms up without touching the connections; for a forked child.
  void leak() noexcept;

 private:
  struct Place {
    std::unique_ptr<Comm> comm;
    CommRequest request;
    bool is_on_node = false;
  };
  Comm* get(Place& place, const OpContext& context);
  CommRequest complete(CommRequest request, const OpContext& context);
  std::string host_of(int node, const OpContext& context);
  template <typename Do>
  void for_each_comm(Do action) noexcept;

  int rank_;
  const Topology& topology_;
  const GroupOptions& options_;
  std::vector<int> global_ranks_;
  CommFactory factory_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::map<int, std::string> hosts_;  // by node
  std::mutex mutex_;                  // guards the pointers in the places against abort()
  std::atomic<bool> is_aborted_{false};
  Place local_;
  Place cross_;
  Place flat_;
  Place* flat_place_ = &flat_;
};

}  // namespace chainmail::ops
