// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/tcp_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/net/socket.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/tcp/stream/plain_stream.h"
#include "ops/comm/tcp/stream/sealed_stream.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kConnectorKey = 0;
constexpr std::uint64_t kWakeKey = 1;
constexpr std::uint64_t kFirstPeerKey = 2;

}  // namespace

internal::SocketAddress listen_address(const TcpOptions& options) {
  if (options.interface.empty() && options.on_one_node) return internal::loopback_address();
  return internal::choose_address(options.interface);
}

TcpTransport::TcpTransport(std::shared_ptr<Rendezvous> rendezvous, TcpOptions options)
    : FramedTransport(options, "tcp", std::move(rendezvous)),
      options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      peers_(names_.size()) {
  if (!epoll_.is_open() || !wake_.is_open()) throw system_error("epoll_create1 or eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    throw system_error("epoll_ctl");
  }
  if (size() == 1) return;
  connector_ = std::make_unique<Connector>(
      HandshakeIdentity{options_.secret, options_.group, options_.generation, options_.rank, size(),
                        options_.encryption},
      names_, listen_address(options_), rendezvous_, key_prefix_, epoll_.get(), kConnectorKey);
}

int TcpTransport::connection_count() const noexcept {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const Peer& peer) { return peer.stream != nullptr; }));
}

void TcpTransport::go_on(int peer) {
  want(peer);
  write_to(peer);
}

void TcpTransport::inquire(const Transfer& transfer) {
  const auto& stream = peer(transfer.peer).stream;
  if (stream && internal::is_cut_off(stream->fd(), options_.silence_limit)) {
    close(transfer.peer, "does not answer (cut off)");
    return;
  }
  check_reported_failure();
  if (stream) look_closely(transfer.peer);
  if (stream) link(transfer.peer).inquire(transfer);
}

// On a slow wire fewer bytes come than the kernel would wake this rank for, and what was sent may
// lie in the kernel for long, in the way of the inquiry.
void TcpTransport::look_closely(int rank) {
  Peer& slow = peer(rank);
  read_from(rank);
  if (slow.stream == nullptr) return;
  const std::size_t left = slow.stream->unacknowledged();
  if (left < std::exchange(slow.unacknowledged, left)) ++counters_.moves;
}

PeerState TcpTransport::state(int peer) const {
  if (peers_.at(static_cast<std::size_t>(peer)).stream != nullptr) return PeerState::kConnected;
  if (closed(peer).empty()) return PeerState::kUnknown;
  const PeerLink* link = find_link(peer);
  return link != nullptr && link->has_left() ? PeerState::kLeft : PeerState::kLost;
}

void TcpTransport::want(int rank) {
  throw_if_needed(rank);
  if (!peer(rank).stream) connector_->want(rank);
}

bool TcpTransport::write_to(int rank) {
  TcpStream* stream = peer(rank).stream.get();
  if (stream == nullptr || stream->is_blocked()) return false;
  if (!stream->is_sending() && !link(rank).has_output()) return false;
  try {
    const bool has_moved = stream->write(link(rank));
    if (stream->is_blocked()) watch(rank);
    return has_moved;
  } catch (const StreamError& error) {
    // What the peer said before it went is worth more than "broken pipe".
    if (error.is_silence()) options_.silence->add(name(rank).rank);
    const std::string reason = error.what();
    while (peer(rank).stream && read_from(rank)) continue;
    if (peer(rank).stream) close(rank, reason);
    return true;
  }
}

bool TcpTransport::read_from(int rank) {
  TcpStream* stream = peer(rank).stream.get();
  if (stream == nullptr) return false;
  try {
    const bool has_moved = stream->read(link(rank), kReadBudget);
    watch(rank);
    return has_moved;
  } catch (const StreamError& error) {
    if (error.is_silence()) options_.silence->add(name(rank).rank);
    close(rank, error.what());
    return true;
  }
}

void TcpTransport::close(int rank, const std::string& reason) {
  options_.silence->end(this, name(rank).rank);
  peer(rank).stream.reset();
  closed(rank) = link(rank).has_left() ? "has finished and closed the connection" : reason;
  throw_if_needed(rank);
}

void TcpTransport::watch(int rank) {
  Peer& watched = peer(rank);
  const std::uint32_t events = (watched.stream->is_stalled() ? 0U : std::uint32_t{EPOLLIN}) |
                               (watched.stream->is_blocked() ? std::uint32_t{EPOLLOUT} : 0U);
  if (events == watched.events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = kFirstPeerKey + static_cast<std::uint64_t>(rank);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, watched.stream->fd(), &event) != 0) {
    throw system_error("epoll_ctl");
  }
  watched.events = events;
}

void TcpTransport::attach(NewConnection connection) {
  const int rank = connection.peer;
  internal::set_peer_options(connection.fd.get());
  internal::set_silence_limit(connection.fd.get(), options_.silence_limit);
  link(rank);
  if (connection.keys) {
    peer(rank).stream = std::make_unique<SealedStream>(
        std::move(connection.fd), options_.encryption, std::move(*connection.keys));
  } else {
    peer(rank).stream =
        std::make_unique<PlainStream>(std::move(connection.fd), options_.use_checksum);
  }
  options_.silence->watch(this, name(rank).rank, peer(rank).stream->fd(), options_.silence_limit);
  peer(rank).events = ~0U;
  watch(rank);
}

bool TcpTransport::handle_events(int count, bool& is_connector_ready) {
  bool has_moved = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<std::size_t>(i)];
    if (event.data.u64 == kConnectorKey) {
      is_connector_ready = true;
    } else if (event.data.u64 == kWakeKey) {
      std::uint64_t value = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &value, sizeof value);
      is_interrupted_.store(false);  // who goes on after it was not told to end
    } else {
      const int rank = static_cast<int>(event.data.u64 - kFirstPeerKey);
      if ((event.events & EPOLLOUT) != 0 && peer(rank).stream) {
        peer(rank).stream->unblock();
        has_moved |= write_to(rank);
      }
      if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) has_moved |= read_from(rank);
      if (peer(rank).stream) watch(rank);
    }
  }
  return has_moved;
}

bool TcpTransport::progress() {
  if (!connector_) return false;
  int count = std::exchange(event_count_, 0);
  if (count == 0) count = ::epoll_wait(epoll_.get(), events_.data(), kMaxEvents, 0);
  bool is_connector_ready = false;
  bool has_moved = handle_events(count, is_connector_ready);
  if (is_connector_ready || connector_->needs_time()) {
    for (NewConnection& connection : connector_->progress(is_connector_ready)) {
      attach(std::move(connection));
      has_moved = true;
    }
  }
  // What was read may have made sends ready, or room for what found none.
  for (const int rank : linked_) {
    has_moved |= write_to(rank);
    if (peer(rank).stream && peer(rank).stream->is_stalled()) has_moved |= read_from(rank);
  }
  return has_moved;
}

void TcpTransport::wait(std::chrono::microseconds timeout) {
  if (event_count_ > 0) return;
  // Addresses are looked up and strangers timed out without an event.
  if (connector_ && connector_->needs_time()) timeout = std::min(timeout, {milliseconds{2}});
  const timespec time{timeout.count() / 1000000, timeout.count() % 1000000 * 1000};
  int count = ::epoll_pwait2(epoll_.get(), events_.data(), kMaxEvents, &time, nullptr);
  if (count < 0 && (errno == ENOSYS || errno == EPERM)) {  // an old kernel, a container's filter
    const auto ms = std::chrono::ceil<milliseconds>(timeout).count();
    count = ::epoll_wait(epoll_.get(), events_.data(), kMaxEvents, static_cast<int>(ms));
  }
  event_count_ = std::max(count, 0);
}

void TcpTransport::interrupt() noexcept {
  is_interrupted_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

}  // namespace chainmail::ops
