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
#include "ops/comm/frames/framed_transport.h"
#include "ops/comm/mpi/mpi_inbox.h"
#include "ops/comm/mpi/mpi_world.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {

using MpiOptions = TransportMember;

class MpiTransport final : public FramedTransport {
 public:
  /// Opens an inbox and publishes it; needs no other rank to return. Throws MpiError.
  MpiTransport(std::shared_ptr<MpiWorld> world, std::shared_ptr<Rendezvous> rendezvous,
               MpiOptions options);
  /// Says goodbye to peers, waiting shortly for what was sent to be taken.
  ~MpiTransport() override;

  using FramedTransport::post;
  void post(Send& send) override;
  void inquire(const Transfer& transfer) override;
  /// Everybody who knows the inbox can send to it.
  void expect_all() override {}
  PeerState state(int peer) const override;
  bool progress() override;
  void wait(std::chrono::microseconds timeout) override;
  void fail(const std::exception_ptr& error) noexcept override;
  void interrupt() noexcept override;

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
    std::optional<Address> address;
    std::deque<SentBuffer> sending;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void go_on(int peer) override;
  bool take(const MpiBuffer& buffer);
  bool send_to(int rank);
  bool collect_sent(Peer& to);
  void look_up();
  void look_up(int rank);
  void close(int rank, const std::string& reason);
  void end(FrameType last, const std::string& body, std::chrono::milliseconds time);
  bool pump() noexcept;
  void drop_all() noexcept;

  const std::string group_;
  const std::shared_ptr<MpiWorld> world_;
  MissingRanks missing_ranks_;
  std::optional<MpiInbox> inbox_;
  std::vector<Peer> peers_;
  internal::Deadline next_look_up_;
  int idle_waits_ = 0;
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool is_woken_ = false;
};

}  // namespace chainmail::ops
