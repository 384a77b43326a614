// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/support/patience.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <optional>

namespace chainmail {
namespace {

using Clock = std::chrono::steady_clock;

// Some time slices of the scheduler: less work than one slice is never held up.
constexpr std::chrono::milliseconds kWork{20};
// What another process takes at most before this one goes on; what is longer is a pause of the
// whole machine, and no measure of how busy it is.
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::milliseconds{250};
// How long a measurement holds.
constexpr std::chrono::seconds kFresh{1};

std::chrono::nanoseconds processor_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

// Time that passes for each second of the processor.
double slowness() {
  const auto used_before = processor_time();
  std::chrono::nanoseconds passed{0};
  for (auto last = Clock::now(); processor_time() - used_before < kWork;) {
    const auto now = Clock::now();
    passed += std::min<std::chrono::nanoseconds>(now - last, kLongestWait);
    last = now;
  }
  return std::chrono::duration<double>(passed) / kWork;
}

}  // namespace

double patience() {
  static std::mutex mutex;
  static double largest = 1;
  static std::optional<Clock::time_point> measured;
  const std::lock_guard lock(mutex);
  if (!measured || Clock::now() - *measured > kFresh) {
    largest = std::max(largest, slowness());
    measured = Clock::now();
  }
  return largest * CHAINMAIL_TEST_PATIENCE;
}

}  // namespace chainmail
