// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The watchdog of a group's operations: a thread that checks, ten times a second, which operations
// have been running for long, and asks why. Ranks that wait in different Comms never see each
// other's messages; the watchdog compares what they do.
//
// Thread-safe. The thread starts with the first operation and ends when the group rests.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ops/engine/plan/plan.h"

namespace chainmail::ops {

/// An operation that has been running for `rounds` periods, from 1.
struct LongOperation {
  std::shared_ptr<PlannedOperation> operation;
  int rounds = 1;
};

class Watchdog final : public std::enable_shared_from_this<Watchdog> {
 public:
  /// What is running now.
  using Running = std::function<std::vector<std::shared_ptr<PlannedOperation>>()>;
  /// Asked, once a period, about all that has been running for long. Must not throw.
  using Ask = std::function<void(const std::vector<LongOperation>&)>;

  Watchdog(Running running, Ask ask) : running_(std::move(running)), ask_(std::move(ask)) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Called by whoever runs an operation, before it begins. Costs one load while the thread is up.
  /// Where no thread can be started, operations go on without a watchdog.
  void touch() noexcept {
    if (is_asleep_.load()) wake();
  }
  /// Ends the thread; it asks nothing afterwards.
  void stop();
  /// In a forked child, where the thread does not exist.
  void forget_thread() noexcept;

 private:
  void wake() noexcept;
  void watch();

  const Running running_;
  const Ask ask_;
  std::atomic<bool> is_asleep_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace chainmail::ops
