// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Messages over TCP: one connection per pair of ranks that talk, one epoll set per rank.
//
// Thread rule: one thread at a time, except interrupt().

#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "base/unique_fd.h"
#include "ops/comm/frames/framed_transport.h"
#include "ops/comm/tcp/connector.h"
#include "ops/comm/tcp/stream/stream.h"
#include "ops/core/failure/peer_silence.h"

namespace chainmail::ops {

struct TcpOptions : TransportMember {
  std::string secret;        ///< of the job
  std::string interface;     ///< name or address; empty: see listen_address()
  bool on_one_node = false;  ///< all ranks; host names cannot tell, cloned machines have equal ones
  bool use_checksum = true;  ///< XXH3 of payloads; equal or not between ranks
  std::chrono::milliseconds silence_limit = internal::kSilenceLimit;  ///< see GroupOptions
  std::shared_ptr<PeerSilence> silence = std::make_shared<PeerSilence>();
  Encryption encryption = Encryption::kOff;  ///< equal on all ranks; checksums add nothing to it
};

/// Where a rank listens (port 0): at the interface asked for, or else at 127.0.0.1 when all ranks
/// are on one node, or else where other nodes reach it. Throws InvalidArgument (no such interface).
[[nodiscard]] internal::SocketAddress listen_address(const TcpOptions& options);

class TcpTransport final : public FramedTransport {
 public:
  /// Opens the listener and publishes its address; connects to nobody. Throws InvalidArgument (no
  /// such interface) and SystemError.
  TcpTransport(std::shared_ptr<Rendezvous> rendezvous, TcpOptions options);
  /// Says goodbye to peers, waiting for what was sent as long as it arrives.
  ~TcpTransport() override;

  void inquire(const Transfer& transfer) override;
  /// Whoever sends connects.
  void expect_all() override {}
  PeerState state(int peer) const override;
  bool progress() override;
  void wait(std::chrono::microseconds timeout) override;
  void fail(const std::exception_ptr& error) noexcept override;
  void interrupt() noexcept override;
  /// Connections that are open now.
  int connection_count() const noexcept;

 private:
  struct Peer {
    std::unique_ptr<TcpStream> stream;
    std::uint32_t events = 0;        ///< what epoll watches
    std::size_t unacknowledged = 0;  ///< of what was sent, when it was looked at last
  };

  /// Taken from one peer before the next one's turn, and before this rank sends again.
  static constexpr std::size_t kReadBudget = std::size_t{1} << 20;

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void go_on(int peer) override;
  void note_silence();
  void want(int rank);
  bool handle_events(int count, bool& is_connector_ready);
  void attach(NewConnection connection);
  bool write_to(int rank);
  bool read_from(int rank);
  void look_closely(int rank);
  void watch(int rank);
  void close(int rank, const std::string& reason);
  void linger(std::chrono::milliseconds time, bool is_hasty) noexcept;
  bool is_drained(int rank) noexcept;

  const TcpOptions options_;
  internal::UniqueFd epoll_;
  internal::UniqueFd wake_;
  std::unique_ptr<Connector> connector_;
  std::vector<Peer> peers_;
  static constexpr int kMaxEvents = 32;
  std::array<epoll_event, kMaxEvents> events_{};
  int event_count_ = 0;  ///< events that wait() has found
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace chainmail::ops
