// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Messages between ranks of one node over shared memory. Every rank has an inbox: a segment with a
// ring for each of the others, which they find through the rendezvous when they first write to it
// or hear from its owner. Nobody waits for ranks that it has nothing to do with.
//
// Thread rule: one thread at a time, except interrupt().

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "ops/comm/frames/framed_transport.h"
#include "ops/comm/shm/memory/segment.h"
#include "ops/comm/shm/messages/ring_stream.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {

struct ShmTransportOptions {
  int rank = 0;                 ///< this rank's number among those of the node
  std::vector<PeerName> names;  ///< one per rank
  std::string key_prefix;       ///< of the rendezvous keys; no other transport may use it
  /// Of an inbox, shared by the rings of all peers.
  std::size_t ring_bytes = std::size_t{256} << 10;
};

class ShmTransport final : public FramedTransport {
 public:
  /// Makes the inbox and publishes it; waits for nobody. Throws InvalidArgument (numbers that
  /// cannot be right) and SystemError (no memory).
  ShmTransport(std::shared_ptr<Rendezvous> rendezvous, ShmTransportOptions options);
  /// Lets peers know that nothing more will come. What was sent stays for them to read.
  ~ShmTransport() override;

  void inquire(const Transfer& transfer) override;
  /// Whoever sends needs to know that it is read, and is to be noticed when it dies.
  void expect_all() override;
  PeerState state(int peer) const override;
  bool progress() override;
  void wait(std::chrono::microseconds timeout) override;
  void fail(const std::exception_ptr& error) noexcept override;
  void interrupt() noexcept override;

 private:
  struct Peer {
    std::optional<shm::RingReader> reader;
    std::optional<shm::Segment> inbox;  ///< the peer's, once found
    std::optional<shm::RingWriter> writer;
    internal::UniqueFd process;    ///< pidfd; closed for a rank that is a thread of this process
    bool is_wanted = false;        ///< to be found
    bool is_process_gone = false;  ///< ended before it could be watched
    bool has_left = false;
    std::string gone;  ///< why its inbox cannot be reached any more
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void go_on(int peer) override;
  void want(int rank);
  void find_wanted();
  void find(int rank);
  void watch(Peer& peer);
  bool is_dead(const Peer& peer) const;
  bool write_to(int rank);
  bool read_from(int rank);
  void check_peer(int rank, bool looks_for_dead);
  void close(int rank, const std::string& reason, bool has_left);
  bool has_news() const noexcept;
  bool is_done_with(const Peer& peer) const noexcept;

  MissingRanks missing_ranks_;
  shm::Segment inbox_;
  std::vector<Peer> peers_;
  int wanted_count_ = 0;
  internal::Deadline next_search_ = internal::Deadline::after(std::chrono::milliseconds{0});
  std::chrono::milliseconds search_pause_{0};
  internal::Deadline next_check_ = internal::Deadline::after(std::chrono::milliseconds{0});
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace chainmail::ops
