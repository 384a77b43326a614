// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The threads of a group that run its users' callbacks and free their memory, and nothing else: a
// callback may take locks whose holder waits for an operation, and may itself wait for operations
// of any group.
//
// Tasks begin in the order in which they were posted, one at a time. One that takes longer than
// kPatience no longer holds up those behind it, which get another thread: it may be waiting for
// what one of them does. Threads start with the first task and end when there have been none for a
// while. Thread-safe.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace chainmail::ops {

class CallbackExecutor final : public std::enable_shared_from_this<CallbackExecutor> {
 public:
  using Task = std::function<void()>;
  static constexpr std::chrono::milliseconds kPatience{10};

  CallbackExecutor() = default;
  CallbackExecutor(const CallbackExecutor&) = delete;
  CallbackExecutor& operator=(const CallbackExecutor&) = delete;
  ~CallbackExecutor();

  /// Runs `task`, which must not throw, soon in a thread of this executor. Never waits, so it may
  /// be called with locks held.
  void post(Task task) noexcept;

  /// Waits until all tasks have ended. False when `limit` passed first, or when a task itself asks.
  bool drain(std::chrono::milliseconds limit);
  /// Ends the threads once they have run what was posted; what is posted later runs when this
  /// object goes. Waits at most `limit`, and not for the caller's own task.
  void stop(std::chrono::milliseconds limit);
  /// In a forked child, where the threads do not exist.
  void forget_threads() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  bool is_own_thread() const noexcept;
  bool start_thread() noexcept;
  void work();
  void run_next(Lock& lock);
  bool rest(Lock& lock);

  std::mutex mutex_;
  std::condition_variable work_;  // for threads that rest or wait for their turn
  std::condition_variable done_;  // tasks, or threads, have ended
  std::deque<Task> tasks_;
  std::uint64_t turn_ = 0;          // of the task that began last
  Clock::time_point turn_begin_{};  // when it did
  bool is_taken_ = false;           // that task is running and has not taken long
  int running_ = 0;                 // tasks
  int threads_ = 0;
  int resting_ = 0;  // threads without a task
  bool is_stopped_ = false;
};

}  // namespace chainmail::ops
