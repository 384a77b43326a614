// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/doors.h"

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
#include "plugin/job/node_id.h"

namespace chainmail::internal {
namespace {

// One refusal may be a socket that is still being opened, or a queue that was full.
constexpr std::chrono::milliseconds kRefusedTime{300};
// Whoever waits for more ranks than this has time: what it does not watch, others do.
constexpr std::size_t kMostDoors = 64;
constexpr std::chrono::milliseconds kLookTime{250};
// As many may wait in front of a door as are not answered: all ranks of a large job.
constexpr int kBacklog = 4096;

// How long a new group waits for the doors of other nodes' ranks, which come to the board now.
constexpr std::chrono::milliseconds kVisitTime{100};

// On the board: an address, and on a loopback the network that it belongs to.
constexpr char kNetworkMark = ' ';

/// The doors of this process: towards its own node, and towards others. Never closed by us.
struct OwnDoors {
  std::mutex mutex;
  std::array<UniqueFd, 2> sockets;
  std::set<std::string> open_to_us;  ///< those of others that have let us in
};

OwnDoors& own_doors() {
  static OwnDoors* const doors = [] {
    // A forked child would keep the door of a parent that has ended.
    ::pthread_atfork(nullptr, nullptr, [] {
      for (UniqueFd& socket : own_doors().sockets) socket.reset();
    });
    return new OwnDoors;
  }();
  return *doors;
}

bool has_let_us_in(const SocketAddress& address) {
  OwnDoors& doors = own_doors();
  const std::lock_guard lock(doors.mutex);
  return doors.open_to_us.contains(address.to_string());
}

std::string door_address(bool is_for_other_nodes, const std::string& interface) {
  OwnDoors& doors = own_doors();
  const std::lock_guard lock(doors.mutex);
  UniqueFd& socket = doors.sockets[is_for_other_nodes ? 1 : 0];
  if (!socket.is_open()) {
    socket =
        listen_on(is_for_other_nodes ? choose_address(interface) : loopback_address(), kBacklog);
  }
  const std::string address = local_address(socket.get()).to_string();
  return is_for_other_nodes ? address : address + kNetworkMark + network_id();
}

}  // namespace

/// Nothing while `rank` has no door on the board, or one that cannot be reached from here.
std::optional<Doors::Door> Doors::find(int rank, Deadline deadline) const {
  std::string text;
  try {
    text = board_->try_get(key_of(rank), deadline).value_or("");
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
  const std::size_t mark = text.find(kNetworkMark);
  const auto address = parse_address(text.substr(0, mark));
  if (!address) return std::nullopt;
  Door door{*address, mark != std::string::npos};
  if (door.is_near) {
    const std::string network = text.substr(mark + 1);
    if (network.empty() || network != network_id()) return std::nullopt;
  }
  return door;
}

void Doors::knock(Door& door) {
  door.knock.reset();
  try {
    door.knock = start_connect(door.address);
    set_peer_options(door.knock.get());
  } catch (const SystemError& error) {
    note_answer(door, error.native_code());
  }
}

/// False while there is none.
bool Doors::listen_for_answer(Door& door) {
  if (!door.knock.is_open()) return true;
  pollfd ready{door.knock.get(), POLLOUT | POLLRDHUP, 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  const int error = connect_error(door.knock.get());
  const bool is_closed = (ready.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
  note_answer(door, error);
  // A connection that breaks says no more than that: the next knock is the answer.
  if (error != 0 || is_closed) door.knock.reset();
  return true;
}

void Doors::note_answer(Door& door, int error) {
  if (error == 0 || error == ECONNRESET) {
    OwnDoors& doors = own_doors();
    const std::lock_guard lock(doors.mutex);
    doors.open_to_us.insert(door.address.to_string());
  }
  if (error != ECONNREFUSED || !(door.is_near || has_let_us_in(door.address))) {
    door.gone_if_still_refused.reset();
  } else if (!door.gone_if_still_refused) {
    door.gone_if_still_refused = Deadline::after(kRefusedTime);
  }
}

std::optional<ops::RankEnd> Doors::end_of(int rank) {
  std::unique_lock lock(mutex_);
  if (!doors_.contains(rank)) {
    if (doors_.size() >= kMostDoors) return std::nullopt;
    lock.unlock();  // the board may take its time
    auto found = find(rank, Deadline::after(kLookTime));
    if (!found) return std::nullopt;
    lock.lock();
    doors_.try_emplace(rank, std::move(*found));
  }
  Door& door = doors_.at(rank);
  if (!door.knock.is_open()) knock(door);
  if (!listen_for_answer(door)) return std::nullopt;  // still connecting
  if (!door.gone_if_still_refused || !door.gone_if_still_refused->has_passed()) return std::nullopt;
  return ops::RankEnd{rank, "", "has ended"};
}

void Doors::visit(const std::vector<int>& ranks) {
  const Deadline deadline = Deadline::after(kVisitTime);
  std::vector<int> unseen(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(
                                                             std::min(ranks.size(), kMostDoors)));
  std::vector<Door> visited;
  const auto have_answered = [&] {
    std::erase_if(unseen, [&](int rank) {
      auto door = find(rank, deadline);
      if (door && !has_let_us_in(door->address)) knock(visited.emplace_back(std::move(*door)));
      return door.has_value();
    });
    std::erase_if(visited, [](Door& door) { return listen_for_answer(door); });
    return unseen.empty() && visited.empty();
  };
  static_cast<void>(poll_until(have_answered, deadline));  // who is late is looked at later
}

std::shared_ptr<ops::RankLiveness> open_doors(std::shared_ptr<ops::Rendezvous> board, int rank,
                                              const ops::Topology& topology,
                                              const JobSettings& settings) {
  const bool has_others = topology.node_count() > 1;
  if (topology.size() == 1 || (has_others && settings.cross == ops::CrossTransport::kMpi)) {
    return nullptr;
  }
  try {
    board->set(Doors::key_of(rank), door_address(has_others, settings.interface));
  } catch (const SystemError& error) {
    // Out of descriptors, perhaps: the time limit tells, too.
    log_line(LogLevel::kWarning, std::string("other ranks cannot see whether this one still "
                                             "lives: ") +
                                     error.what());
  }
  auto doors = std::make_shared<Doors>(std::move(board));
  if (has_others) {
    std::vector<int> others;  // the next ones first: they are whom most algorithms wait for
    for (int step = 1; step < topology.size(); ++step) {
      others.push_back((rank + step) % topology.size());
    }
    doors->visit(others);
  }
  return doors;
}

}  // namespace chainmail::internal
