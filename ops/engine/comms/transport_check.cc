// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/comms/transport_check.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "ops/comm/transport.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {
namespace {

/// What a rank writes down: "shm tcp n1".
struct Transports {
  std::string local;
  std::string cross;
  std::string host;  ///< for messages
};

std::string key_of(int rank) { return "transports/" + std::to_string(rank); }

class TransportCheck final : public PrefixRendezvous, public RankLiveness {
 public:
  TransportCheck(std::shared_ptr<Rendezvous> inner_rendezvous, int rank, const Topology& topology,
                 const GroupOptions& options, std::vector<int> global_ranks)
      : PrefixRendezvous("", std::move(inner_rendezvous)),
        liveness_(dynamic_cast<RankLiveness*>(&inner())),
        rank_(rank),
        topology_(topology),
        group_(options.name),
        global_ranks_(std::move(global_ranks)),
        own_{options.use_shared_memory ? "shm" : "tcp", to_string(options.cross), options.host} {
    set(key_of(rank_), own_.local + " " + own_.cross + " " + own_.host);
  }

  void leave() noexcept override { inner().leave(); }

  std::optional<RankEnd> end_of(int rank) override {
    if (!is_silent()) check(rank);
    return liveness_ == nullptr ? std::nullopt : liveness_->end_of(rank);
  }

 private:
  void check(int rank) const {
    const auto text = inner().try_get(key_of(rank));
    Transports other;
    if (!text || !(std::istringstream(*text) >> other.local >> other.cross)) return;
    other.host = text->substr(std::min(text->size(), other.local.size() + other.cross.size() + 2));
    if (other.cross != own_.cross) {
      throw_mismatch(rank, other, "transport between nodes", &Transports::cross,
                     "CHAINMAIL_CROSS, or what the program asks for,");
    }
    // Between nodes nobody asks how ranks of a node reach each other.
    if (topology_.node_of(rank) == topology_.node_of(rank_) && other.local != own_.local) {
      throw_mismatch(rank, other, "transport on the node", &Transports::local, "CHAINMAIL_LOCAL");
    }
  }

  [[noreturn]] void throw_mismatch(int rank, const Transports& other, const std::string& what,
                                   std::string Transports::*which,
                                   const std::string& setting) const {
    throw MismatchError(name(rank, other) + " has " + what + " \"" + other.*which + "\", " +
                        name(rank_, own_) + " has \"" + own_.*which + "\" (group " + group_ +
                        "); set " + setting + " alike on all ranks");
  }

  std::string name(int rank, const Transports& of) const {
    return PeerName{global_ranks_.at(static_cast<std::size_t>(rank)), of.host}.describe();
  }

  RankLiveness* const liveness_;  // inner(), where it knows of ends
  const int rank_;
  const Topology topology_;
  const std::string group_;
  const std::vector<int> global_ranks_;
  const Transports own_;
};

}  // namespace

std::shared_ptr<Rendezvous> with_transport_check(std::shared_ptr<Rendezvous> rendezvous, int rank,
                                                 const Topology& topology,
                                                 const GroupOptions& options,
                                                 const std::vector<int>& global_ranks) {
  return std::make_shared<TransportCheck>(std::move(rendezvous), rank, topology, options,
                                          global_ranks);
}

}  // namespace chainmail::ops
