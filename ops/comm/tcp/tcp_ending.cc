// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a rank leaves its peers: in order, or with the reason why it gives up.

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "base/net/socket.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/tcp/tcp_transport.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {

using std::chrono::milliseconds;

TcpTransport::~TcpTransport() {
  options_.silence->end(this);
  if (has_failed_) return;
  try {
    for (const int rank : linked_) link(rank).end_with(FrameType::kGoodbye, {});
    // In a group that has failed elsewhere a peer may be cut off: it would never acknowledge.
    const bool is_hasty = is_interrupted_.load();
    linger(is_hasty ? kAbortTime : kGoodbyeTime, is_hasty);
  } catch (const std::exception& error) {
    internal::log_line(internal::LogLevel::kWarning,
                       "closing group " + options_.group + ": " + error.what());
  }
}

bool TcpTransport::is_drained(int rank) noexcept {
  const auto& stream = peer(rank).stream;
  return !stream || (!stream->is_sending() && !find_link(rank)->has_output() &&
                     internal::unacknowledged_bytes(stream->fd()) == 0);
}

// Sends what is left and waits until the peers' kernels have it: closing a socket with unread bytes
// resets the connection, and what is still under way would be lost. Gives up when nothing has been
// acknowledged for `time`, or at once after `time` when it `is_hasty`.
void TcpTransport::linger(milliseconds time, bool is_hasty) noexcept {
  auto deadline = internal::Deadline::after(time);
  std::size_t least_left = std::numeric_limits<std::size_t>::max();
  while (true) {
    bool is_done = true;
    std::size_t left = 0;
    for (const int rank : linked_) {
      Peer& last = peer(rank);
      if (!last.stream) continue;
      try {
        last.stream->write(link(rank));
      } catch (...) {
        last.stream.reset();  // nobody is left to be told
        continue;
      }
      try {
        last.stream->read(link(rank), kReadBudget);
      } catch (const StreamError&) {
        last.stream.reset();
      } catch (...) {  // NOLINT(bugprone-empty-catch): this rank has ended, whatever peers say
      }
      if (last.stream) internal::acknowledge_now(last.stream->fd());  // the peer may linger, too
      is_done = is_done && is_drained(rank);
      if (last.stream) left += internal::unacknowledged_bytes(last.stream->fd());
    }
    if (!is_hasty && left < std::exchange(least_left, std::min(left, least_left))) {
      deadline = internal::Deadline::after(time);
    }
    if (is_done || deadline.has_passed()) return;
    ::usleep(100);
  }
}

/// While the connections are there to be asked.
void TcpTransport::note_silence() {
  options_.silence->end(this);
  if (!connector_) return;
  const auto enough = PeerSilence::enough(options_.silence_limit);
  for (const int rank : connector_->unanswered(enough)) options_.silence->add(name(rank).rank);
}

void TcpTransport::fail(const std::exception_ptr& error) noexcept {
  if (std::exchange(has_failed_, true)) return;
  try {
    note_silence();
    const std::string body = encode_error(error);
    for (const int rank : linked_) link(rank).end_with(FrameType::kAbort, body);
    if (size() > 1) rendezvous_->set(failure_key(), body);
    linger(kAbortTime, true);
  } catch (const std::exception& problem) {
    internal::log_line(internal::LogLevel::kWarning, "group " + options_.group +
                                                         " has failed, and its peers cannot be "
                                                         "told: " +
                                                         problem.what());
  }
  for (Peer& peer : peers_) peer = Peer{};
  drop_links();
  connector_.reset();
}

}  // namespace chainmail::ops
