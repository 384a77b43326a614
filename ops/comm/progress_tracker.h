// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// When a group's collectives last made progress, as far as one rank knows: what their time limit
// counts from. An operation may take any time while it moves, and fails when the rank that
// runs it has for its limit neither moved nor heard of a rank that has.
//
// What moves: bytes of an operation's messages, steps of the ranks of a node, a rank that gets to
// its next wait. What does not: inquiries, heartbeats, other groups, sends and receives.
//
// Who waits for a rank that waits itself needs its news: ranks of a node read them in each other's
// memory, others get them in answer to an inquiry. News that are handed on between nodes say how
// long ago it was, which is wrong by the time on the way; so they go over kMaxHops hops only, and
// ranks that only wait for each other cannot keep each other waiting.
//
// For the thread that runs the group's operations; reading what is shown is for every rank.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace chainmail::ops {

class ProgressTracker {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned kMaxHops = 63;

  /// As it travels in a message.
  struct Report {
    std::chrono::milliseconds age{0};
    unsigned hops = 0;  ///< how often it was handed on, this time included
  };

  ProgressTracker() = default;
  ProgressTracker(const ProgressTracker&) = delete;
  ProgressTracker& operator=(const ProgressTracker&) = delete;

  /// An operation begins.
  void begin() noexcept { bytes_ = 0; }
  /// Something has moved here since the last look(). Reads no clock: cheap enough for every step.
  void note(std::uint64_t bytes = 0) noexcept {
    ++moves_;
    bytes_ += bytes;
  }
  /// For whoever has read the clock anyway.
  void look(Clock::time_point now) noexcept {
    if (moves_ == seen_moves_) return;
    seen_moves_ = moves_;
    set(now, 0);
  }
  /// Payload that this rank has sent and received in this operation.
  std::uint64_t bytes() const noexcept { return bytes_; }

  /// How much of `limit` is left at `now`, not positive when nothing has moved for that long.
  std::chrono::nanoseconds left(std::chrono::milliseconds limit,
                                Clock::time_point now) const noexcept {
    return latest_ + limit - now;
  }
  /// How often to look for news of others: several times within a limit.
  static std::chrono::milliseconds period(std::chrono::milliseconds limit,
                                          std::chrono::milliseconds longest) noexcept;

  /// From now on `place` holds what this rank knows; null: no more. Must be visible to ranks of
  /// this machine only, which have the same clock.
  void show_in(std::atomic<std::uint64_t>* place) noexcept;
  /// What another rank of this machine has shown.
  void learn(std::uint64_t shown, Clock::time_point now) noexcept;

  /// What to tell a rank that asks; nothing when it has been handed on too often.
  std::optional<Report> report(Clock::time_point now) const noexcept;
  void learn(const Report& report, Clock::time_point now) noexcept;

 private:
  void set(Clock::time_point when, unsigned hops) noexcept;

  std::uint64_t moves_ = 0;
  std::uint64_t seen_moves_ = 0;
  std::uint64_t bytes_ = 0;
  Clock::time_point latest_ = Clock::now();
  unsigned hops_ = 0;  // over which latest_ has come
  std::atomic<std::uint64_t>* shown_ = nullptr;
};

}  // namespace chainmail::ops
