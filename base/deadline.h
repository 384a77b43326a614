// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A point on the monotonic clock by which something must have happened. Wall time decides nothing.

#pragma once

#include <algorithm>
#include <chrono>

namespace chainmail::internal {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds timeout) {
    const auto limit = bounded(timeout);
    return Deadline(Clock::now() + limit, limit);
  }

  /// `timeout` as after() takes it: a huge one would overflow the clock, and a year is never.
  static constexpr std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) noexcept {
    constexpr std::chrono::milliseconds kYear = std::chrono::hours{24 * 365};
    return std::clamp(timeout, std::chrono::milliseconds{0}, kYear);
  }

  bool has_passed() const { return Clock::now() >= when_; }

  /// How long after its making it is: for those who begin to count anew when something moves.
  std::chrono::milliseconds limit() const noexcept { return limit_; }

  /// What is left, never negative.
  std::chrono::milliseconds left() const {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return std::max(rest, std::chrono::milliseconds{0});
  }

 private:
  Deadline(Clock::time_point when, std::chrono::milliseconds limit) : when_(when), limit_(limit) {}
  Clock::time_point when_;
  std::chrono::milliseconds limit_;
};

}  // namespace chainmail::internal
