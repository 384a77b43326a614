// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A thread that looks, ten times a second, whether the operation that is running has been running
// for long, and asks why. Ranks whose operations wait in different Comms never see each other's
// messages; here they do.
//
// Thread-safe. The thread starts with the first operation and sleeps while the group is idle.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "ops/engine/queue.h"

namespace chainmail::ops {

class Lookout final : public std::enable_shared_from_this<Lookout> {
 public:
  /// Asked about an operation that has been running for `round` periods, from 1. Must not throw.
  using Ask = std::function<void(const QueuedOperation&, int round)>;

  Lookout(std::shared_ptr<OperationQueue> queue, Ask ask)
      : queue_(std::move(queue)), ask_(std::move(ask)) {}
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  /// Called by whoever runs an operation, before it begins. Costs one load while the thread is up.
  /// The lookout is a help: where no thread can be had, operations go on without.
  void touch() noexcept {
    if (is_asleep_.load()) {
      wake();
    }
  }
  /// Ends the thread; it asks nothing afterwards.
  void stop();
  /// In a forked child, where the thread does not exist.
  void forget_thread() noexcept;

 private:
  void wake() noexcept;
  void watch();

  const std::shared_ptr<OperationQueue> queue_;
  const Ask ask_;
  std::atomic<bool> is_asleep_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace chainmail::ops
