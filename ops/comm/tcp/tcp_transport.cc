// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/tcp_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/net/socket.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/tcp/stream/plain_stream.h"
#include "ops/comm/tcp/stream/sealed_stream.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kConnectorKey = 0;
constexpr std::uint64_t kWakeKey = 1;
constexpr std::uint64_t kFirstPeerKey = 2;
// Shorter than the time between two inquiries about one transfer.
constexpr milliseconds kFailureCheckPause{50};

}  // namespace

internal::SocketAddress listen_address(const TcpOptions& options) {
  if (options.interface.empty() && options.on_one_node) return internal::loopback_address();
  return internal::choose_address(options.interface);
}

TcpTransport::TcpTransport(std::shared_ptr<Rendezvous> rendezvous, TcpOptions options)
    : options_(std::move(options)),
      rendezvous_(std::move(rendezvous)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      peers_(options_.names.size()) {
  if (options_.rank < 0 || options_.rank >= size()) {
    throw InvalidArgument("rank " + std::to_string(options_.rank) + " of " +
                          std::to_string(size()) + " names in group " + options_.group);
  }
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
      options_.names, listen_address(options_), rendezvous_, key_prefix(), epoll_.get(),
      kConnectorKey);
}

// Groups of another generation have other keys, in case the store outlives them.
std::string TcpTransport::key_prefix() const {
  return options_.group + "/tcp/" + std::to_string(options_.generation) + "/";
}

int TcpTransport::connection_count() const noexcept {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const Peer& peer) { return peer.stream != nullptr; }));
}

PeerLink& TcpTransport::link(int rank) {
  Peer& peer = peers_.at(static_cast<std::size_t>(rank));
  if (!peer.link) {
    peer.link =
        std::make_unique<PeerLink>(name(options_.rank), name(rank), log_, counters_, tracker());
    linked_.push_back(rank);
  }
  return *peer.link;
}

void TcpTransport::begin(std::uint64_t position, const MessageHeader& header) {
  log_.add(position, header);
  for (const int rank : linked_) link(rank).begin(position);
}

void TcpTransport::post(Send& send) {
  link(send.peer).post(send);
  want(send.peer);
  write_to(send.peer);
}

void TcpTransport::post(Receive& receive) {
  link(receive.peer).post(receive);
  want(receive.peer);
  write_to(receive.peer);
}

void TcpTransport::inquire(const Transfer& transfer) {
  const auto& stream = peer(transfer.peer).stream;
  if (stream && internal::is_cut_off(stream->fd(), internal::kSilenceLimit)) {
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

bool TcpTransport::has_message(int peer, std::uint64_t tag) const {
  const auto& link = peers_.at(static_cast<std::size_t>(peer)).link;
  return link != nullptr && link->has_message(tag);
}

PeerState TcpTransport::state(int peer) const {
  const Peer& known = peers_.at(static_cast<std::size_t>(peer));
  if (known.stream != nullptr) return PeerState::kConnected;
  if (known.closed.empty()) return PeerState::kUnknown;
  return known.link->has_left() ? PeerState::kLeft : PeerState::kLost;
}

// A rank that gives up before it is connected to everybody leaves its reason at the rendezvous.
// One look serves all transfers of a round: each is a round trip to the store.
void TcpTransport::check_reported_failure() {
  if (!next_failure_check_.has_passed()) return;
  const auto text = rendezvous_->try_get(failure_key());
  if (text) std::rethrow_exception(decode_error(*text));
  next_failure_check_ = internal::Deadline::after(kFailureCheckPause);
}

void TcpTransport::want(int rank) {
  throw_if_needed(rank);
  if (!peer(rank).stream) connector_->want(rank);
}

void TcpTransport::throw_if_needed(int rank) {
  if (peer(rank).closed.empty()) return;
  const Transfer* pending = link(rank).pending();
  if (pending == nullptr) return;
  throw PeerError(
      name(rank).describe() + " " + peer(rank).closed + " during " + pending->header.describe(),
      name(rank).rank);
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
    close(rank, error.what());
    return true;
  }
}

void TcpTransport::close(int rank, const std::string& reason) {
  peer(rank).stream.reset();
  peer(rank).closed = link(rank).has_left() ? "has finished and closed the connection" : reason;
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
  link(rank);
  if (connection.keys) {
    peer(rank).stream = std::make_unique<SealedStream>(
        std::move(connection.fd), options_.encryption, std::move(*connection.keys));
  } else {
    peer(rank).stream =
        std::make_unique<PlainStream>(std::move(connection.fd), options_.use_checksum);
  }
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
