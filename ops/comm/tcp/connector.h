// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Makes the connections of one rank: publishes its listener, dials peers, answers those who dial,
// and turns strangers away. Connections are made when first wanted.
//
// Not thread-safe; never blocks. Either end may dial; when both do, the lower rank's connection is
// the one that stays.

#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/net/socket.h"
#include "base/unique_fd.h"
#include "ops/comm/tcp/handshake.h"
#include "ops/comm/transport.h"
#include "ops/core/liveness.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

struct NewConnection {
  int peer = 0;
  internal::UniqueFd fd;
  std::optional<StreamKeys> keys;  ///< nothing where nothing is sealed
};

class Connector {
 public:
  /// Opens the listener on `address` (port 0) and publishes it under `key_prefix`. Every socket is
  /// registered in `epoll_fd` with `epoll_key`. `names` outlives the connector. Throws SystemError.
  Connector(HandshakeIdentity identity, const std::vector<PeerName>& names,
            const internal::SocketAddress& address, std::shared_ptr<Rendezvous> rendezvous,
            std::string key_prefix, int epoll_fd, std::uint64_t epoll_key);

  /// Begins to connect to `peer` unless that is under way or done already.
  void want(int peer);
  /// Goes on with all handshakes. `is_ready`: a socket of the connector had an event.
  /// Throws PeerError when a peer refuses connections, cannot prove that it belongs to the job, or
  /// has ended before it could be reached; MismatchError when it wants another encryption.
  std::vector<NewConnection> progress(bool is_ready);
  /// Peers that no try has reached since the first one, `time` or more ago.
  std::vector<int> unanswered(std::chrono::milliseconds time) const;
  /// True while something is to be done at a time rather than at an event.
  bool needs_time() const noexcept { return wanted_count_ > 0 || !accepted_.empty(); }

 private:
  enum class Phase { kIdle, kLookup, kConnecting, kHandshake, kAwaited, kConnected };
  struct Peer {
    Phase phase = Phase::kIdle;
    std::optional<internal::SocketAddress> address;
    std::unique_ptr<Handshake> dialed;
    internal::Deadline next_try = internal::Deadline::after(std::chrono::milliseconds{0});
    std::chrono::milliseconds pause{1};
    std::optional<internal::Deadline> give_up;  ///< set by the first try, until one has reached it
  };

  void watch(int fd, std::uint32_t events) const;
  void accept_all();
  void advance_accepted(std::vector<NewConnection>& connections);
  void advance_peer(int rank, Peer& peer, std::vector<NewConnection>& connections);
  void look_up(int rank, Peer& peer);
  void dial(int rank, Peer& peer);
  void finish_connect(int rank, Peer& peer);
  void try_again(Peer& peer);
  void no_answer(int rank, Peer& peer, int error);
  void throw_if_ended(int rank);
  void connected(int rank, Handshake& handshake, std::vector<NewConnection>& connections);
  [[noreturn]] void throw_mismatch(const Handshake& handshake) const;
  const PeerName& name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  HandshakeIdentity identity_;
  const std::vector<PeerName>& names_;
  std::shared_ptr<Rendezvous> rendezvous_;
  MissingRanks missing_ranks_;
  std::string key_prefix_;
  int epoll_fd_;
  std::uint64_t epoll_key_;
  internal::UniqueFd listener_;
  std::vector<Peer> peers_;
  std::list<Handshake> accepted_;
  int wanted_count_ = 0;
  internal::Deadline next_sweep_ = internal::Deadline::after(std::chrono::milliseconds{0});
};

}  // namespace chainmail::ops
