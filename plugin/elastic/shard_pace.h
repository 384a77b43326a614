// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How long a shard takes on this rank: the median of the last steps, so that a step that was held
// up changes nothing.
//
// One thread.

#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace chainmail::internal {

class ShardPace {
 public:
  /// Of a step of `samples` in all, of which this rank's `shards` took `time`. The short step at an
  /// epoch's end is left out.
  void add(std::int64_t samples, std::uint32_t shards, std::chrono::steady_clock::duration time) {
    most_samples_ = std::max(most_samples_, samples);
    if (shards == 0 || samples < most_samples_) return;
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(time / shards);
    times_[steps_++ % kSteps] = std::max(took, std::chrono::microseconds(1));
  }

  /// 0 before there are enough steps.
  [[nodiscard]] std::chrono::microseconds shard_time() const {
    if (steps_ < kFewestSteps) return {};
    auto times = times_;
    const auto count = static_cast<std::ptrdiff_t>(std::min(steps_, kSteps));
    std::nth_element(times.begin(), times.begin() + count / 2, times.begin() + count);
    return times[static_cast<std::size_t>(count / 2)];
  }

 private:
  static constexpr std::size_t kSteps = 9;
  static constexpr std::size_t kFewestSteps = 3;

  std::array<std::chrono::microseconds, kSteps> times_{};  ///< of a shard; a ring
  std::size_t steps_ = 0;                                  ///< that were added, ever
  std::int64_t most_samples_ = 0;
};

}  // namespace chainmail::internal
