// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/connector.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;
using std::chrono::milliseconds;

// Strangers may keep so many connections half open, each for so long.
constexpr std::size_t kMaxAccepted = 64;
constexpr milliseconds kHandshakeTime{2000};
// How long a peer that published its address may refuse, or its host be silent.
constexpr milliseconds kNoAnswerTime{3000};
constexpr milliseconds kMaxPause{50};

}  // namespace

Connector::Connector(HandshakeIdentity identity, const std::vector<PeerName>& names,
                     const internal::SocketAddress& address, std::shared_ptr<Rendezvous> rendezvous,
                     std::string key_prefix, int epoll_fd, std::uint64_t epoll_key)
    : identity_(std::move(identity)),
      names_(names),
      rendezvous_(std::move(rendezvous)),
      missing_ranks_(rendezvous_.get()),
      key_prefix_(std::move(key_prefix)),
      epoll_fd_(epoll_fd),
      epoll_key_(epoll_key),
      listener_(internal::listen_on(address, 1024)),
      peers_(static_cast<std::size_t>(identity_.size)) {
  watch(listener_.get(), EPOLLIN);
  rendezvous_->set(key_prefix_ + std::to_string(identity_.rank),
                   internal::local_address(listener_.get()).to_string());
}

void Connector::watch(int fd, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = epoll_key_;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return;
  if (errno == EEXIST && ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0) return;
  throw system_error("epoll_ctl");
}

void Connector::want(int rank) {
  Peer& wanted = peer(rank);
  if (wanted.phase != Phase::kIdle) return;
  wanted.phase = Phase::kLookup;
  wanted.next_try = Deadline::after(milliseconds{0});
  ++wanted_count_;
}

std::vector<NewConnection> Connector::progress(bool is_ready) {
  std::vector<NewConnection> connections;
  if (is_ready) accept_all();
  // Silent strangers cost nothing: without an event they are only looked at to be timed out.
  if (!accepted_.empty() && (is_ready || next_sweep_.has_passed())) {
    next_sweep_ = Deadline::after(milliseconds{100});
    advance_accepted(connections);
  }
  if (wanted_count_ == 0) return connections;
  for (int rank = 0; rank < identity_.size; ++rank) advance_peer(rank, peer(rank), connections);
  return connections;
}

std::vector<int> Connector::unanswered(milliseconds time) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < identity_.size; ++rank) {
    const auto& give_up = peers_[static_cast<std::size_t>(rank)].give_up;
    if (give_up && kNoAnswerTime - give_up->left() >= std::min(time, kNoAnswerTime)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void Connector::accept_all() {
  while (true) {
    internal::UniqueFd fd(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;  // nobody there; or no descriptor left, which may pass
    }
    // The oldest has had the longest time to prove itself.
    if (accepted_.size() >= kMaxAccepted) accepted_.pop_front();
    internal::set_peer_options(fd.get());
    watch(fd.get(), EPOLLIN);
    accepted_.emplace_back(std::move(fd), identity_, Deadline::after(kHandshakeTime));
  }
}

void Connector::advance_accepted(std::vector<NewConnection>& connections) {
  for (auto handshake = accepted_.begin(); handshake != accepted_.end();) {
    const HandshakeState state = handshake->advance();
    if (state == HandshakeState::kPending && !handshake->has_expired()) {
      ++handshake;
      continue;
    }
    if (state == HandshakeState::kStranger) {
      internal::LogMessage(internal::LogLevel::kInfo)
          << "turned away a connection that does not belong to group " << identity_.group;
    }
    if (state == HandshakeState::kMismatch) throw_mismatch(*handshake);
    if (state == HandshakeState::kProven) {
      const int rank = handshake->peer();
      const Phase phase = peer(rank).phase;
      const bool dials = phase == Phase::kConnecting || phase == Phase::kHandshake;
      const bool accepts = phase != Phase::kConnected && !(dials && identity_.rank < rank);
      if (handshake->send_verdict(accepts) && accepts) connected(rank, *handshake, connections);
    }
    handshake = accepted_.erase(handshake);
  }
}

void Connector::connected(int rank, Handshake& handshake, std::vector<NewConnection>& connections) {
  connections.push_back({rank, handshake.take_fd(), handshake.derive_keys()});
  Peer& done = peer(rank);
  if (done.phase != Phase::kIdle) --wanted_count_;
  done.dialed.reset();
  done.give_up.reset();
  done.phase = Phase::kConnected;
}

// Both have proven that they mean it: nobody else can end a group in this way.
void Connector::throw_mismatch(const Handshake& handshake) const {
  throw MismatchError(name(handshake.peer()).describe() + " has encryption \"" +
                      to_string(handshake.peer_encryption()) + "\", " +
                      name(identity_.rank).describe() + " has \"" +
                      to_string(identity_.encryption) + "\" (group " + identity_.group +
                      "); set CHAINMAIL_ENCRYPT alike on all ranks, or start all of them with the "
                      "same launcher option, --encrypt or --authenticate");
}

void Connector::advance_peer(int rank, Peer& peer, std::vector<NewConnection>& connections) {
  if (peer.phase == Phase::kLookup && peer.next_try.has_passed()) look_up(rank, peer);
  if (peer.phase == Phase::kConnecting) finish_connect(rank, peer);
  if (peer.phase == Phase::kAwaited && peer.next_try.has_passed()) try_again(peer);
  if (peer.phase != Phase::kHandshake) return;
  switch (peer.dialed->advance()) {
    case HandshakeState::kAccepted:
      connected(rank, *peer.dialed, connections);
      return;
    case HandshakeState::kYielded:
      // The peer's own connection is on its way; if it never comes, dial again.
      peer.dialed.reset();
      peer.phase = Phase::kAwaited;
      peer.next_try = Deadline::after(milliseconds{500});
      return;
    case HandshakeState::kMismatch:
      throw_mismatch(*peer.dialed);
    case HandshakeState::kRefused:
      throw PeerError("the process at " + peer.address->to_string() + ", published for " +
                          name(rank).describe() + " in group " + identity_.group +
                          ", does not know the job's secret",
                      name(rank).rank);
    case HandshakeState::kClosed:
    case HandshakeState::kStranger:
      // Turned away half-way, as happens when strangers crowd the peer.
      try_again(peer);
      return;
    case HandshakeState::kPending:
    case HandshakeState::kProven:
      return;
  }
}

void Connector::try_again(Peer& peer) {
  peer.dialed.reset();
  peer.phase = Phase::kLookup;
  peer.pause = std::min(2 * peer.pause, kMaxPause);
  peer.next_try = Deadline::after(peer.pause);
}

void Connector::no_answer(int rank, Peer& peer, int error) {
  if (peer.give_up && peer.give_up->has_passed()) {
    throw PeerError(name(rank).describe() + " does not answer at " + peer.address->to_string() +
                        " (group " + identity_.group + "): " + std::strerror(error),
                    name(rank).rank);
  }
  throw_if_ended(rank);
  try_again(peer);
}

void Connector::look_up(int rank, Peer& peer) {
  if (!peer.address) {
    const auto text = rendezvous_->try_get(key_prefix_ + std::to_string(rank));
    if (!text) {
      throw_if_ended(rank);
      try_again(peer);
      return;
    }
    peer.address = internal::parse_address(*text);
    if (!peer.address) {
      throw PeerError(
          name(rank).describe() + " published \"" + *text + "\", which is not an address",
          name(rank).rank);
    }
  }
  dial(rank, peer);
}

void Connector::throw_if_ended(int rank) {
  if (const auto end = missing_ranks_.end_of(rank)) {
    throw PeerError(name(rank).describe() + " " + end->cause + " before it met " +
                        name(identity_.rank).describe() + " in group " + identity_.group,
                    name(rank).rank);
  }
}

void Connector::dial(int rank, Peer& peer) {
  if (!peer.give_up) peer.give_up = Deadline::after(kNoAnswerTime);
  try {
    internal::UniqueFd fd = internal::start_connect(*peer.address);
    internal::set_peer_options(fd.get());
    watch(fd.get(), EPOLLOUT);
    peer.dialed =
        std::make_unique<Handshake>(std::move(fd), identity_, rank, Deadline::after(kNoAnswerTime));
    peer.phase = Phase::kConnecting;
  } catch (const SystemError& error) {
    no_answer(rank, peer, error.native_code());
  }
}

void Connector::finish_connect(int rank, Peer& peer) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  const int error = internal::connect_error(peer.dialed->fd());
  if (error != 0) {
    no_answer(rank, peer, error);
    return;
  }
  if (::getpeername(peer.dialed->fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    if (peer.dialed->has_expired()) no_answer(rank, peer, ETIMEDOUT);
    return;  // still connecting
  }
  watch(peer.dialed->fd(), EPOLLIN);
  peer.give_up.reset();
  peer.phase = Phase::kHandshake;
}

}  // namespace chainmail::ops
