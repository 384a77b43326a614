// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Messages between ranks: what P2pComm's schedules are built on, and what carries a group's sends
// and receives. Implemented by threads of one process, by shared memory, by TCP and by MPI.
//
// Thread rule: one thread at a time, except interrupt(). A message of rank a with tag t meets the
// receive of its peer with tag t; equal tags meet in order. Messages above kEagerBytes wait at the
// sender until the receive is posted, so that early arrivals take bounded memory.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "ops/comm/progress_tracker.h"
#include "ops/message_header.h"

namespace chainmail::ops {

/// Longer messages are sent only once the receiver has said that it waits for them.
inline constexpr std::size_t kEagerBytes = std::size_t{256} << 10;

/// What a tag means: a step of the n-th collective call, or a user's point-to-point tag.
class Tag {
 public:
  static std::uint64_t collective(std::uint64_t position, std::uint64_t step) noexcept {
    return position << kStepBits | step;
  }
  /// `number` counts the messages with this tag from one rank to another, alike on both: each has
  /// its own tag then, and none can be taken for another.
  static std::uint64_t point_to_point(std::uint32_t tag, std::uint64_t number = 0) noexcept {
    return kPointToPoint | (number & kNumberMask) << 32U | std::uint64_t{tag};
  }
  static bool is_point_to_point(std::uint64_t tag) noexcept { return (tag & kPointToPoint) != 0; }
  static std::uint64_t position(std::uint64_t tag) noexcept { return tag >> kStepBits; }
  static constexpr unsigned kStepBits = 24;

 private:
  static constexpr std::uint64_t kPointToPoint = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kNumberMask = 0x7fffffff;
};

/// A message on its way; belongs to the caller and must stay where it is until done.
struct Transfer {
  int peer = 0;
  std::uint64_t tag = 0;
  MessageHeader header;
  std::size_t bytes = 0;
  std::atomic<bool> is_done{false};
  /// Of `bytes`, as far as the transport can tell before the end. For the transport's thread.
  std::size_t moved_bytes = 0;
  /// Counts when bytes of it have moved, or of those that go before it over the same connection.
  std::uint64_t moves = 0;
  /// Set by who inquires between two ranks, cleared by the answer: meanwhile what comes from the
  /// peer may be in front of that answer, and is counted.
  bool is_asked = false;
  std::uint64_t moves_ahead = 0;
};
struct Send : Transfer {
  const std::byte* data = nullptr;
};
struct Receive : Transfer {
  std::byte* data = nullptr;
  std::uint16_t flags = 0;  ///< of the sender's header, once done
};

/// Who a rank of the Comm is, for messages.
struct PeerName {
  int rank = 0;  ///< the job's number of it
  std::string host;
  /// "rank 3 on host n2"
  [[nodiscard]] std::string describe() const;
};

/// What a rank knows of another's end.
enum class PeerState {
  kUnknown,  ///< nothing has come from it yet
  kConnected,
  kLeft,  ///< it has finished in order; nothing more will come
  kLost,  ///< it died, or the connection broke
};

struct TransportCounters {
  std::uint64_t messages_sent = 0;  ///< with payload or not, without the transport's own
  std::uint64_t messages_received = 0;
  std::uint64_t payload_bytes_sent = 0;
  std::uint64_t payload_bytes_received = 0;
  /// Counts when something of a message has moved, in or out; not the transport's own messages.
  std::uint64_t moves = 0;
  std::uint64_t moved_bytes = 0;  ///< of payloads in and out, ended or not
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const PeerName& name(int peer) const = 0;

  /// This rank begins its collective call number `position`; peers that say something else at that
  /// position are found out. Throws MismatchError.
  virtual void begin(std::uint64_t position, const MessageHeader& header) = 0;

  /// Starts a transfer. Zero bytes are a message, too.
  virtual void post(Send& send) = 0;
  virtual void post(Receive& receive) = 0;
  /// Asks the peer of a transfer that is late to compare what both are doing, and whether something
  /// moves there.
  virtual void inquire(const Transfer& transfer) = 0;

  /// True when `peer` has sent, or waits to send, a message with this tag that no receive has been
  /// posted for.
  virtual bool has_message(int peer, std::uint64_t tag) const = 0;
  /// From now on messages of any peer can come, also of those that nothing was posted for.
  virtual void expect_all() = 0;
  virtual PeerState state(int peer) const = 0;

  /// Moves transfers forward; true when something moved. Throws MismatchError before a byte of a
  /// wrong message is used, PeerError when a peer is gone that something is expected from, and
  /// whatever a peer has announced.
  virtual bool progress() = 0;
  /// Sleeps until something may have happened, at most `timeout`.
  virtual void wait(std::chrono::microseconds timeout) = 0;

  /// Tells all peers that this rank gives up and why, forgets all transfers (none of their buffers
  /// is touched any more). Idempotent, bounded in time.
  virtual void fail(const std::exception_ptr& error) noexcept = 0;
  /// Ends wait() soon; from any thread.
  virtual void interrupt() noexcept = 0;

  virtual TransportCounters counters() const noexcept = 0;

  /// What this rank knows of progress, for peers that inquire, and where their answers go. Must
  /// outlive the transport; without, collective inquiries are compared and not answered.
  void follow(ProgressTracker& tracker) noexcept { tracker_ = &tracker; }

 protected:
  ProgressTracker* tracker() const noexcept { return tracker_; }

 private:
  ProgressTracker* tracker_ = nullptr;
};

}  // namespace chainmail::ops
