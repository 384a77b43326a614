// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/doors.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/socket.h"

namespace chainmail::internal {
namespace {

// One refusal may be a socket that is still being opened, or a queue that was full.
constexpr std::chrono::milliseconds kRefusedTime{300};
// Whoever waits for more ranks than this has time: what it does not watch, others do.
constexpr std::size_t kMostDoors = 64;
// As many may wait in front of a door as are not answered: all ranks of a large job.
constexpr int kBacklog = 4096;

/// The doors of this process: towards its own node, and towards others. Never closed by us.
struct OwnDoors {
  std::mutex mutex;
  std::array<UniqueFd, 2> sockets;
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

std::string door_address(bool is_for_other_nodes, const std::string& interface) {
  OwnDoors& doors = own_doors();
  const std::lock_guard lock(doors.mutex);
  UniqueFd& socket = doors.sockets[is_for_other_nodes ? 1 : 0];
  if (!socket.is_open()) {
    socket =
        listen_on(is_for_other_nodes ? choose_address(interface) : loopback_address(), kBacklog);
  }
  return local_address(socket.get()).to_string();
}

}  // namespace

void Doors::knock(Door& door) {
  door.knock.reset();
  const auto address = parse_address(door.address);
  if (!address) return;
  try {
    door.knock = start_connect(*address);
    set_peer_options(door.knock.get());
  } catch (const SystemError& error) {
    note_answer(door, error.native_code());
  }
}

void Doors::note_answer(Door& door, int error) {
  if (error != ECONNREFUSED) {
    door.gone_if_still_refused.reset();
  } else if (!door.gone_if_still_refused) {
    door.gone_if_still_refused = Deadline::after(kRefusedTime);
  }
}

std::optional<ops::RankEnd> Doors::end_of(int rank) {
  const std::lock_guard lock(mutex_);
  if (doors_.size() >= kMostDoors && !doors_.contains(rank)) return std::nullopt;
  Door& door = doors_[rank];
  if (door.address.empty()) {
    door.address = board_->try_get(key_of(rank)).value_or("");
    if (door.address.empty()) {
      doors_.erase(rank);
      return std::nullopt;
    }
    knock(door);
  }
  if (!door.knock.is_open()) knock(door);
  if (door.knock.is_open()) {
    pollfd ready{door.knock.get(), POLLOUT | POLLRDHUP, 0};
    if (::poll(&ready, 1, 0) <= 0) return std::nullopt;  // still connecting
    const int error = connect_error(door.knock.get());
    const bool is_closed = (ready.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
    note_answer(door, error);
    // A connection that breaks says no more than that: the next knock is the answer.
    if (error != 0 || is_closed) door.knock.reset();
  }
  if (!door.gone_if_still_refused || !door.gone_if_still_refused->has_passed()) return std::nullopt;
  return ops::RankEnd{rank, "", "has ended"};
}

std::shared_ptr<ops::Attendance> open_doors(std::shared_ptr<ops::Rendezvous> board, int rank,
                                            const ops::Topology& topology,
                                            const JobSettings& settings) {
  const bool has_others = topology.node_count() > 1;
  if (topology.size() == 1 || (has_others && settings.cross == ops::CrossCarrier::kMpi)) {
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
  return std::make_shared<Doors>(std::move(board));
}

}  // namespace chainmail::internal
