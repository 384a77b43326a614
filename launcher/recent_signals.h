// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What sends a signal to all processes of a job (scancel, a scheduler's warning) reaches launcher
// and agents, who pass it on to each other: within a second the same number is the same signal.
//
// One thread.

#pragma once

#include <chrono>
#include <map>

namespace chainmail::launch {

class RecentSignals {
 public:
  void add(int number) { when_[number] = Clock::now(); }
  void clear() noexcept { when_.clear(); }
  /// Within the last second.
  [[nodiscard]] bool has(int number) const {
    const auto found = when_.find(number);
    return found != when_.end() && Clock::now() - found->second < kOneSignal;
  }
  /// However long ago.
  [[nodiscard]] bool has_ever(int number) const { return when_.contains(number); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kOneSignal{1000};

  std::map<int, Clock::time_point> when_;
};

}  // namespace chainmail::launch
