// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/liveness_probe.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads/poll_until.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

// One refusal may be a socket that is still being opened, or a queue that was full.
constexpr std::chrono::milliseconds kRefusedTime{300};
// A rank that waits for more peers than this watches only the first; other ranks watch the rest.
constexpr std::size_t kMaxPeers = 64;
constexpr std::chrono::milliseconds kLookUpTime{250};
// Connections are never accepted, so the backlog must hold all ranks of a large job.
constexpr int kBacklog = 4096;

// How long a new group waits for the addresses of ranks on other nodes and for their answers.
constexpr std::chrono::milliseconds kFirstProbeTime{100};

// A published value is an address and, on a loopback, the network that it belongs to.
constexpr char kNetworkMark = ' ';

/// The listening sockets of this process, for its own node and for others. Never closed by us.
struct OwnSockets {
  std::mutex mutex;
  std::array<UniqueFd, 2> sockets;
  std::set<std::string> accepted_us;  ///< addresses of others that we have connected to
};

OwnSockets& own_sockets() {
  static OwnSockets* const own = [] {
    // A forked child would keep the socket of a parent that has ended.
    ::pthread_atfork(nullptr, nullptr, [] {
      for (UniqueFd& socket : own_sockets().sockets) socket.reset();
    });
    return new OwnSockets;
  }();
  return *own;
}

bool has_accepted_us(const SocketAddress& address) {
  OwnSockets& own = own_sockets();
  const std::lock_guard lock(own.mutex);
  return own.accepted_us.contains(address.to_string());
}

std::string own_address(bool is_for_other_nodes, const std::string& interface) {
  OwnSockets& own = own_sockets();
  const std::lock_guard lock(own.mutex);
  UniqueFd& socket = own.sockets[is_for_other_nodes ? 1 : 0];
  if (!socket.is_open()) {
    socket =
        listen_on(is_for_other_nodes ? choose_address(interface) : loopback_address(), kBacklog);
  }
  const std::string address = local_address(socket.get()).to_string();
  return is_for_other_nodes ? address : address + kNetworkMark + network_id();
}

}  // namespace

/// Nothing while `rank` has published no address, or one that cannot be reached from here.
std::optional<LivenessProbe::Peer> LivenessProbe::look_up(int rank, Deadline deadline) const {
  std::string text;
  try {
    text = rendezvous_->try_get(key_of(rank), deadline).value_or("");
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
  const std::size_t mark = text.find(kNetworkMark);
  const auto address = parse_address(text.substr(0, mark));
  if (!address) return std::nullopt;
  Peer peer{*address, mark != std::string::npos};
  if (peer.is_near) {
    const std::string network = text.substr(mark + 1);
    if (network.empty() || network != network_id()) return std::nullopt;
  }
  return peer;
}

void LivenessProbe::connect(Peer& peer) {
  peer.connection.reset();
  try {
    peer.connection = start_connect(peer.address);
    set_peer_options(peer.connection.get());
  } catch (const SystemError& error) {
    record_answer(peer, error.native_code());
  }
}

/// False while there is no answer.
bool LivenessProbe::poll_answer(Peer& peer) {
  if (!peer.connection.is_open()) return true;
  pollfd ready{peer.connection.get(), POLLOUT | POLLRDHUP, 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  const int error = connect_error(peer.connection.get());
  const bool is_closed = (ready.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
  record_answer(peer, error);
  // A broken connection proves nothing: the next attempt gives the answer.
  if (error != 0 || is_closed) peer.connection.reset();
  return true;
}

void LivenessProbe::record_answer(Peer& peer, int error) {
  if (error == 0 || error == ECONNRESET) {
    OwnSockets& own = own_sockets();
    const std::lock_guard lock(own.mutex);
    own.accepted_us.insert(peer.address.to_string());
  }
  if (error != ECONNREFUSED || !(peer.is_near || has_accepted_us(peer.address))) {
    peer.gone_if_still_refused.reset();
  } else if (!peer.gone_if_still_refused) {
    peer.gone_if_still_refused = Deadline::after(kRefusedTime);
  }
}

std::optional<ops::RankEnd> LivenessProbe::end_of(int rank) {
  std::unique_lock lock(mutex_);
  if (!peers_.contains(rank)) {
    if (peers_.size() >= kMaxPeers) return std::nullopt;
    lock.unlock();  // the rendezvous may be slow
    auto found = look_up(rank, Deadline::after(kLookUpTime));
    if (!found) return std::nullopt;
    lock.lock();
    peers_.try_emplace(rank, std::move(*found));
  }
  Peer& peer = peers_.at(rank);
  if (!peer.connection.is_open()) connect(peer);
  if (!poll_answer(peer)) return std::nullopt;  // still connecting
  if (!peer.gone_if_still_refused || !peer.gone_if_still_refused->has_passed()) return std::nullopt;
  return ops::RankEnd{rank, "", "has ended"};
}

void LivenessProbe::probe_once(const std::vector<int>& ranks) {
  const Deadline deadline = Deadline::after(kFirstProbeTime);
  std::vector<int> unseen(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(
                                                             std::min(ranks.size(), kMaxPeers)));
  std::vector<Peer> visited;
  const auto have_answered = [&] {
    std::erase_if(unseen, [&](int rank) {
      auto peer = look_up(rank, deadline);
      if (peer && !has_accepted_us(peer->address)) connect(visited.emplace_back(std::move(*peer)));
      return peer.has_value();
    });
    std::erase_if(visited, [](Peer& peer) { return poll_answer(peer); });
    return unseen.empty() && visited.empty();
  };
  static_cast<void>(poll_until(have_answered, deadline));  // late ones are asked later
}

std::shared_ptr<ops::RankLiveness> start_liveness_probe(std::shared_ptr<ops::Rendezvous> rendezvous,
                                                        int rank, const ops::Topology& topology,
                                                        const JobSettings& settings) {
  const bool has_others = topology.node_count() > 1;
  if (topology.size() == 1 || (has_others && settings.cross == ops::CrossTransport::kMpi)) {
    return nullptr;
  }
  try {
    rendezvous->set(LivenessProbe::key_of(rank), own_address(has_others, settings.interface));
  } catch (const SystemError& error) {
    // Perhaps out of descriptors. The time limit still applies.
    log_line(LogLevel::kWarning,
             std::string("other ranks cannot detect the end of this one: ") + error.what());
  }
  auto probe = std::make_shared<LivenessProbe>(std::move(rendezvous));
  if (has_others) {
    std::vector<int> others;  // the next ones first: most algorithms wait for them
    for (int step = 1; step < topology.size(); ++step) {
      others.push_back((rank + step) % topology.size());
    }
    probe->probe_once(others);
  }
  return probe;
}

}  // namespace chainmail::internal
