// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The Comms that algorithms compose, between threads of one test.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ops/algorithms/all_reduce.h"
#include "ops/comm/p2p/p2p_comm.h"
#include "tests/ops/support/reference_comm.h"
#include "tests/ops/support/thread_transport.h"

namespace chainmail::test {

/// What carries the data: boards, or the Comms that threads of one process use.
enum class CommKind { kReference, kThread };

/// Makes the Comms of one run; threads that ask for the same name meet.
class CommMaker {
 public:
  explicit CommMaker(CommKind transport) : transport_(transport) {}

  std::unique_ptr<ops::Comm> make(const std::string& name, int rank, int size) {
    if (transport_ == CommKind::kReference) {
      return std::make_unique<ReferenceComm>(room_.board(name, size), rank, size);
    }
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ops::ThreadHub>& hub = hubs_[name];
    if (hub == nullptr) hub = std::make_shared<ops::ThreadHub>(size);
    return std::make_unique<ops::P2pComm>(std::make_unique<ops::ThreadTransport>(hub, rank));
  }

 private:
  CommKind transport_;
  ReferenceWorld room_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ops::ThreadHub>> hubs_;
};

/// Those of one rank.
class RankComms {
 public:
  RankComms(const ops::Topology& topology, CommMaker& maker, int rank) {
    const int node = topology.node_of(rank);
    const int local_rank = topology.local_rank_of(rank);
    const int local_size = static_cast<int>(topology.ranks_of_node(node).size());
    if (local_size > 1) local_ = maker.make("local" + std::to_string(node), local_rank, local_size);
    if (topology.node_count() > 1 && local_rank < topology.min_local_size()) {
      cross_ = maker.make("cross" + std::to_string(local_rank), node, topology.node_count());
    }
    if (topology.size() > 1) flat_ = maker.make("flat", rank, topology.size());
    comms = {&topology, local_.get(), cross_.get(), flat_.get()};
  }

  ops::Comms comms;

 private:
  std::unique_ptr<ops::Comm> local_;
  std::unique_ptr<ops::Comm> cross_;
  std::unique_ptr<ops::Comm> flat_;
};

}  // namespace chainmail::test
