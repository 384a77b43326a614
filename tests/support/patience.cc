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
// How long a measurement holds.
constexpr std::chrono::seconds kFresh{1};

std::chrono::nanoseconds processor_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

// Time that passes for each second of the processor.
double slowness() {
  const auto begin = Clock::now();
  const auto used_before = processor_time();
  while (processor_time() - used_before < kWork) {
  }
  return std::chrono::duration<double>(Clock::now() - begin) / kWork;
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
