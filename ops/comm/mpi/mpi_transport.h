// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Messages over MPI: the frames that TCP carries, each in one MPI message of our own memory.
//
// Thread rule: one thread at a time, except interrupt(). MPI wakes nobody, so wait() sleeps shortly
// and looks again. A frame is copied once on either side: MPI cannot take back a send, and its
// buffer must outlive a failure.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "ops/comm/call_log.h"
#include "ops/comm/frames/peer_link.h"
#include "ops/comm/mpi/mpi_inbox.h"
#include "ops/comm/mpi/mpi_world.h"
#include "ops/comm/transport.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {

struct MpiOptions {
  int rank = 0;
  std::vector<PeerName> names;  ///< one per rank
  std::string group;            ///< unique in the job; also the prefix of the keys
  std::uint32_t generation = 0;
};

class MpiTransport final : public Transport {
 public:
  /// Opens an inbox and publishes it; needs no other rank to return. Throws MpiError.
  MpiTransport(std::shared_ptr<MpiWorld> world, std::shared_ptr<Rendezvous> rendezvous,
               MpiOptions options);
  /// Says goodbye to peers, waiting shortly for what was sent to be taken.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return static_cast<int>(options_.names.size()); }
  const PeerName& name(int peer) const override {
    return options_.names.at(static_cast<std::size_t>(peer));
  }
  void begin(std::uint64_t position, const MessageHeader& header) override;
  void post(Send& send) override;
  void post(Receive& receive) override;
  void inquire(const Transfer& transfer) override;
  bool has_message(int peer, std::uint64_t tag) const override;
  /// Everybody who knows the inbox can send to it.
  void expect_all() override {}
  PeerState state(int peer) const override;
  bool progress() override;
  void wait(std::chrono::microseconds timeout) override;
  void fail(const std::exception_ptr& error) noexcept override;
  void interrupt() noexcept override;
  TransportCounters counters() const noexcept override { return counters_; }

 private:
  struct Address {
    int process = 0;  ///< in MPI_COMM_WORLD
    int inbox = 0;
  };
  // A send whose end is told when MPI has ended it, not when its bytes are copied: MPI moves long
  // messages while somebody calls it, and who thinks that all is sent may not call it for long.
  struct HeldSend {
    Send copy;  ///< what the link knows
    Send* original = nullptr;
  };
  struct SentBuffer {
    std::unique_ptr<MpiBuffer> buffer;
    std::list<HeldSend> ends;  ///< at most one: whose last bytes these are
  };
  struct Peer {
    std::list<HeldSend> held;
    std::unique_ptr<PeerLink> link;
    std::optional<Address> address;
    std::deque<SentBuffer> sending;
    std::string closed;  ///< why nothing can be expected from it any more
  };

  std::string key_prefix() const;
  std::string failure_key() const { return key_prefix() + "failed"; }
  PeerLink& link(int rank);
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool take(const MpiBuffer& buffer);
  bool send_to(int rank);
  bool collect_sent(Peer& to);
  void look_up();
  void look_up(int rank);
  void close(int rank, const std::string& reason);
  void throw_if_needed(int rank);
  PeerError gone(const Transfer& transfer);
  void check_reported_failure();
  void end(FrameType last, const std::string& body, std::chrono::milliseconds time);
  bool pump() noexcept;
  void drop_all() noexcept;

  const MpiOptions options_;
  const std::shared_ptr<MpiWorld> world_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  MissingRanks missing_ranks_;
  std::optional<MpiInbox> inbox_;
  CallLog log_;
  TransportCounters counters_;
  std::vector<Peer> peers_;
  std::vector<int> linked_;  ///< ranks that something was posted for or has come from
  internal::Deadline next_look_up_;
  internal::Deadline next_failure_check_;
  bool has_failed_ = false;
  int idle_waits_ = 0;
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool is_woken_ = false;
};

}  // namespace chainmail::ops
