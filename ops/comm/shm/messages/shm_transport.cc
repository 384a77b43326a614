// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/messages/shm_transport.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/comm/frames/frame.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;
using shm::Presence;
using std::chrono::milliseconds;

constexpr std::size_t kSmallestRing = std::size_t{16} << 10;
// Taken from one peer before the next one's turn.
constexpr std::size_t kReadBudget = std::size_t{1} << 20;
// How often the rendezvous is asked for an inbox: at first at once, then less and less often.
constexpr milliseconds kMaxSearchPause{10};
constexpr milliseconds kCheckPeriod{50};

shm::Layout layout_for(std::size_t ranks, std::size_t ring_bytes) {
  shm::Layout layout;
  layout.ranks = ranks;
  const std::size_t peers = std::max<std::size_t>(ranks - 1, 1);
  layout.ring_bytes = std::max(ring_bytes / peers, kSmallestRing) / 128 * 128;
  return layout;
}

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<Rendezvous> rendezvous, ShmTransportOptions options)
    : FramedTransport(options.rank, std::move(options.names), " on a node", std::move(rendezvous),
                      std::move(options.key_prefix)),
      missing_ranks_(rendezvous_.get()),
      inbox_([this, &options] {
        shm::Segment segment = shm::Segment::create(layout_for(names_.size(), options.ring_bytes));
        rendezvous_->set(key_of(rank_), segment.offer());
        return segment;
      }()),
      peers_(names_.size()) {
  shm::RankArea& own = inbox_.area(0);
  own.pid = ::getpid();
  own.presence.store(Presence::kJoined);
  for (int rank = 0; rank < size(); ++rank) {
    peer(rank).reader.emplace(inbox_.ring_head(rank), inbox_.ring_data(rank),
                              inbox_.layout().ring_bytes);
  }
}

ShmTransport::~ShmTransport() {
  inbox_.area(0).presence.store(Presence::kLeft);
  for (Peer& other : peers_) {
    if (!other.writer) continue;
    other.writer->leave();
    other.inbox->wake_sleepers();
  }
}

void ShmTransport::go_on(int peer) {
  want(peer);
  write_to(peer);
}

void ShmTransport::inquire(const Transfer& transfer) {
  check_reported_failure();
  link(transfer.peer).inquire(transfer);
}

void ShmTransport::expect_all() {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_) want(rank);
  }
}

PeerState ShmTransport::state(int rank) const {
  const Peer& known = peers_.at(static_cast<std::size_t>(rank));
  if (!closed(rank).empty()) return known.has_left ? PeerState::kLeft : PeerState::kLost;
  return known.inbox ? PeerState::kConnected : PeerState::kUnknown;
}

void ShmTransport::want(int rank) {
  throw_if_needed(rank);
  Peer& wanted = peer(rank);
  if (wanted.inbox || wanted.is_wanted || !wanted.gone.empty() || !closed(rank).empty()) return;
  wanted.is_wanted = true;
  ++wanted_count_;
  search_pause_ = milliseconds{0};
  find(rank);
}

void ShmTransport::find_wanted() {
  if (wanted_count_ == 0 || !next_search_.has_passed()) return;
  for (int rank = 0; rank < size(); ++rank) {
    if (peer(rank).is_wanted) find(rank);
    const auto end = peer(rank).is_wanted ? missing_ranks_.end_of(rank) : std::nullopt;
    if (end) close(rank, end->cause + " before it met this rank", true);
  }
  search_pause_ = std::min(2 * search_pause_ + milliseconds{1}, kMaxSearchPause);
  next_search_ = Deadline::after(search_pause_);
}

void ShmTransport::find(int rank) {
  const auto offer = rendezvous_->try_get(key_of(rank));
  if (!offer) return;
  Peer& found = peer(rank);
  if (std::exchange(found.is_wanted, false)) --wanted_count_;
  try {
    found.inbox.emplace(shm::Segment::attach(inbox_.layout(), *offer));
  } catch (const SystemError& error) {
    // The path leads nowhere, or to whatever has the number now, once the owner has closed its own.
    const int code = error.native_code();
    if (code == EACCES || code == EPERM || code == ENOMEM || code == EMFILE || code == ENFILE)
      throw;
    found.gone = std::string("has finished, or cannot be reached (") + error.what() + ")";
    return;
  }
  found.writer.emplace(found.inbox->ring_head(rank_), found.inbox->ring_data(rank_),
                       inbox_.layout().ring_bytes);
  watch(found);
}

void ShmTransport::watch(Peer& found) {
  const int pid = found.inbox->area(0).pid;
  if (pid == ::getpid()) return;  // a thread of this process: it says when it leaves
  // Before 5.3 the kernel has no pidfd: then only the time limit tells.
  found.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  found.is_process_gone = !found.process.is_open() && errno == ESRCH;
}

bool ShmTransport::is_dead(const Peer& known) const {
  pollfd poll_one{known.process.get(), POLLIN, 0};
  return known.is_process_gone || (known.process.is_open() && ::poll(&poll_one, 1, 0) == 1);
}

bool ShmTransport::write_to(int rank) {
  Peer& to = peer(rank);
  if (!to.writer || find_link(rank) == nullptr) return false;
  if (!to.writer->is_sending() && !link(rank).has_output()) return false;
  if (!to.writer->write(link(rank))) return false;
  to.inbox->wake_sleepers();
  return true;
}

bool ShmTransport::read_from(int rank) {
  Peer& from = peer(rank);
  if (!closed(rank).empty() && !from.has_left) return false;  // damaged, or of a process that died
  if (!from.reader->has_data() && !from.reader->is_stalled()) return false;
  // Whoever writes has published its inbox, and may sleep there until its ring has room again.
  if (!from.inbox && from.gone.empty() && closed(rank).empty()) find(rank);
  bool has_moved = false;
  try {
    has_moved = from.reader->read(link(rank), kReadBudget);
  } catch (const StreamError& error) {
    close(rank, error.what(), false);
    return true;
  }
  if (has_moved && from.inbox) from.inbox->wake_sleepers();
  return has_moved;
}

/// True when nothing more of `known` is in its ring.
bool ShmTransport::is_done_with(const Peer& known) const noexcept {
  return !known.reader->has_data() && !known.reader->is_stalled();
}

void ShmTransport::check_peer(int rank, bool looks_for_dead) {
  Peer& known = peer(rank);
  if (!closed(rank).empty()) return;
  if (known.inbox && known.inbox->has_failed()) std::rethrow_exception(known.inbox->failure());
  // Asked first, looked at afterwards: what a rank has delivered before it ended counts.
  const bool has_left = !known.gone.empty() || known.reader->has_writer_left() ||
                        (known.inbox && known.inbox->area(0).presence.load() == Presence::kLeft);
  if (has_left && is_done_with(known)) {
    close(rank, known.gone.empty() ? "has finished and left the group" : known.gone, true);
  } else if (looks_for_dead && is_dead(known) && is_done_with(known)) {
    close(rank, "(pid " + std::to_string(known.inbox->area(0).pid) + ") ended", false);
  }
}

void ShmTransport::close(int rank, const std::string& reason, bool has_left) {
  Peer& lost = peer(rank);
  if (std::exchange(lost.is_wanted, false)) --wanted_count_;
  lost.writer.reset();
  closed(rank) = reason;
  lost.has_left = has_left;
  throw_if_needed(rank);
}

bool ShmTransport::progress() {
  find_wanted();
  const bool looks_for_dead = next_check_.has_passed();
  if (looks_for_dead) next_check_ = Deadline::after(kCheckPeriod);
  bool has_moved = false;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    has_moved |= read_from(rank);
    has_moved |= write_to(rank);
    check_peer(rank, looks_for_dead);
  }
  return has_moved;
}

bool ShmTransport::has_news() const noexcept {
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& other = peer(rank);
    if (rank == rank_ || !closed(rank).empty()) continue;
    if (other.reader->has_data() || other.reader->has_writer_left()) return true;
    if (other.writer && other.writer->can_go_on()) return true;
    if (other.inbox && other.inbox->has_failed()) return true;
  }
  return is_interrupted_.load();
}

void ShmTransport::wait(std::chrono::microseconds timeout) {
  if (wanted_count_ > 0) timeout = std::min<std::chrono::microseconds>(timeout, search_pause_);
  inbox_.sleep([this] { return has_news(); }, timeout);
  is_interrupted_.store(false);
}

void ShmTransport::interrupt() noexcept {
  is_interrupted_.store(true);
  inbox_.ring_bell();
}

void ShmTransport::fail(const std::exception_ptr& error) noexcept {
  if (std::exchange(has_failed_, true)) return;
  inbox_.fail(error);
  for (const Peer& other : peers_) {
    if (other.inbox) other.inbox->ring_bell();
  }
  try {
    rendezvous_->set(failure_key(), encode_error(error));
  } catch (const std::exception& problem) {
    internal::log_line(
        internal::LogLevel::kWarning,
        "ranks of this node that have not been reached cannot be told of a failure: " +
            std::string(problem.what()));
  }
  drop_links();
}

}  // namespace chainmail::ops
