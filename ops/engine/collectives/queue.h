// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The ordered queue of a group's collectives: one operation at a time, in call order, run by
// whoever waits for it or by the progress thread.
//
// An operation that its caller waits for runs in the caller; a small asynchronous one lies ready to
// be run by its own wait(), and the thread, which naps while the group is busy (see
// ProgressThread), takes it when nobody does. Large ones wake the thread at once. A small one that
// is next and whose peers have come is not even made an object of: see submit_promptly().
//
// Thread-safe. Callbacks run in threads of the executor, which hold and wait for nothing of ours:
// whoever runs an operation may be an unrelated waiter with locks of its own.

#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/threads/progress_thread.h"
#include "ops/core/operation.h"
#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {

class OperationQueue;

/// An operation in a queue; kept alive by the queue and by whoever submitted it.
class QueuedOperation final : public PlannedOperation {
 public:
  QueuedOperation(std::shared_ptr<OperationQueue> queue, Collective what, Plan how,
                  std::chrono::milliseconds limit)
      : PlannedOperation(std::move(what), std::move(how), limit), queue_(std::move(queue)) {}

  void wait(std::optional<std::chrono::milliseconds> limit = std::nullopt) override;
  void on_done(std::function<void()> callback) override;
  int source_rank() const noexcept override { return -1; }

 private:
  friend class OperationQueue;
  std::shared_ptr<OperationQueue> queue_;
  std::vector<std::function<void()>> callbacks_;  // guarded by the queue's mutex
};

class OperationQueue final : public std::enable_shared_from_this<OperationQueue> {
 public:
  using Run = std::function<void(QueuedOperation&)>;
  using Attempt = std::function<bool(const Collective&, const Plan&)>;

  /// `run` carries out one operation and throws its error. `attempt` may begin an operation and,
  /// within microseconds, end it: true then. After false it goes to `run`. Must not throw. Only one
  /// of the two is called at a time. `executor` runs the callbacks.
  OperationQueue(std::shared_ptr<CallbackExecutor> executor, Run run, Attempt attempt = {})
      : executor_(std::move(executor)), run_(std::move(run)), attempt_(std::move(attempt)) {}
  ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// Gives the operation its sequence number and its place. A synchronous one that is next runs
  /// before this returns. Throws InvalidArgument after close(), `error` after fail_all(error),
  /// std::system_error where no thread can be had; the operation has not been queued then.
  void submit(const std::shared_ptr<QueuedOperation>& operation);
  /// submit() of a synchronous operation that may be done at once. Null when it is: allocates
  /// nothing, reads no clock, takes the lock once.
  [[nodiscard]] std::shared_ptr<QueuedOperation> submit_promptly(const Collective& collective,
                                                                 Plan plan,
                                                                 std::chrono::milliseconds limit);
  void wait(QueuedOperation& operation, std::optional<std::chrono::milliseconds> limit);
  void add_callback(QueuedOperation& operation, std::function<void()> callback);

  /// Ends all operations that nobody has begun, and all later ones, with `error`, each under its
  /// own name.
  void fail_all(const std::exception_ptr& error);
  /// Runs what is queued and waits until nothing runs; false when `limit` passed first, or when
  /// the caller is itself inside an operation.
  bool drain(std::chrono::milliseconds limit);
  /// Later submits throw; what is queued still runs.
  void close();
  /// Ends the progress thread and, with an error, what is still queued. Later submits throw.
  void stop();
  /// In a forked child, where the thread does not exist.
  void forget_thread() noexcept { thread_.forget(); }

  /// The operation that is being run, or null.
  [[nodiscard]] std::shared_ptr<QueuedOperation> running() const;
  /// The latest operations that ended, newest last.
  [[nodiscard]] std::vector<PastOperation> past() const;
  [[nodiscard]] std::uint64_t submitted() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run_next(Lock& lock);
  void remember(const Plan& plan);
  void throw_if_ended(OpKind kind) const;
  void finish(QueuedOperation& operation, std::exception_ptr error);
  static void drop(Lock& lock, std::shared_ptr<QueuedOperation> operation);
  void append(const std::shared_ptr<QueuedOperation>& operation);
  void end_queued(Lock& lock, const std::exception_ptr& error);
  void call_thread(bool is_urgent);
  void hand_over();
  void work();
  bool can_run() const { return !is_busy_ && !queue_.empty(); }

  const std::shared_ptr<CallbackExecutor> executor_;
  const Run run_;
  const Attempt attempt_;
  mutable std::mutex mutex_;
  std::condition_variable done_;  // an operation ended
  std::deque<std::shared_ptr<QueuedOperation>> queue_;
  std::shared_ptr<QueuedOperation> running_;
  std::thread::id runner_;
  std::array<PastOperation, 16> past_;
  std::uint64_t past_count_ = 0;
  std::uint64_t submitted_ = 0;
  std::exception_ptr failure_;
  int sleepers_ = 0;
  bool is_busy_ = false;
  bool is_closed_ = false;
  internal::ProgressThread thread_;
};

}  // namespace chainmail::ops
