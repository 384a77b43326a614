// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/collectives/queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/threads/thread.h"
#include "ops/core/error_text.h"
#include "ops/engine/callbacks/user_code.h"
#include "ops/engine/failure/rank_status.h"

namespace chainmail::ops {
namespace {

// Above this an operation takes longer than waking the thread.
constexpr std::size_t kUrgentBytes = std::size_t{64} << 10;
// A waiter gives way this often before it sleeps: about the time of a middle-sized operation.
constexpr int kYields = 32;

}  // namespace

void QueuedOperation::wait(std::optional<std::chrono::milliseconds> limit) {
  if (!is_done()) queue_->wait(*this, limit);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void QueuedOperation::on_done(std::function<void()> callback) {
  queue_->add_callback(*this, std::move(callback));
}

OperationQueue::~OperationQueue() { stop(); }

void OperationQueue::append(const std::shared_ptr<QueuedOperation>& operation) {
  queue_.push_back(operation);
  operation->plan.header.sequence = submitted_++;
}

void OperationQueue::submit(const std::shared_ptr<QueuedOperation>& operation) {
  Lock lock(mutex_);
  throw_if_ended(operation->collective.kind);
  if (operation->collective.is_async) {
    // First, because it may throw: whoever sees submit() fail frees the buffers. The thread finds
    // the operation when we let go of the lock.
    call_thread(operation->plan.bytes > kUrgentBytes);
    append(operation);
    return;
  }
  const bool is_next = queue_.empty() && !is_busy_;
  append(operation);
  if (is_next) {  // else the caller's wait() does it
    run_next(lock);
    hand_over();
  }
}

std::shared_ptr<QueuedOperation> OperationQueue::submit_promptly(const Collective& collective,
                                                                 Plan plan,
                                                                 std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  throw_if_ended(collective.kind);
  const bool is_next = queue_.empty() && !is_busy_;
  if (is_next) {
    plan.header.sequence = submitted_;
    if (attempt_(collective, plan)) {
      ++submitted_;
      remember(plan);
      return nullptr;
    }
  }
  // Under the same lock: nothing may come between an attempt and the rest of its operation.
  std::shared_ptr<QueuedOperation> operation;
  try {
    operation =
        std::make_shared<QueuedOperation>(shared_from_this(), collective, std::move(plan), limit);
    append(operation);
  } catch (const std::bad_alloc&) {
    failure_ = std::current_exception();  // the peers may have seen it begin
    throw;
  }
  if (is_next) {
    run_next(lock);
    hand_over();
  }
  return operation;
}

void OperationQueue::throw_if_ended(OpKind kind) const {
  if (failure_ != nullptr) std::rethrow_exception(in_operation(to_string(kind), failure_));
  if (is_closed_) {
    throw InvalidArgument(std::string(to_string(kind)) +
                          ": the group was shut down; create a new one");
  }
}

void OperationQueue::call_thread(bool is_urgent) {
  if (!thread_.wake(is_urgent)) {
    // The thread keeps the queue: what it lets go of may be the last handle to the group.
    thread_.start([self = shared_from_this()] { self->work(); });
  }
}

/// For who ran operations and leaves: operations queued in the meantime may have no other runner.
void OperationQueue::hand_over() {
  if (can_run()) thread_.wake(queue_.front()->plan.bytes > kUrgentBytes);
}

void OperationQueue::run_next(Lock& lock) {
  std::shared_ptr<QueuedOperation> operation = std::move(queue_.front());
  queue_.pop_front();
  is_busy_ = true;
  running_ = operation;
  runner_ = std::this_thread::get_id();
  lock.unlock();
  std::exception_ptr error;
  try {
    run_(*operation);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_busy_ = false;
  running_ = nullptr;
  remember(operation->plan);
  finish(*operation, std::move(error));
  drop(lock, std::move(operation));
}

void OperationQueue::remember(const Plan& plan) {
  PastOperation& place = past_[past_count_++ % past_.size()];
  place.channel = plan.channel;
  place.header = plan.header;
}

/// Marks `operation` done, wakes those who wait and has the callbacks run.
void OperationQueue::finish(QueuedOperation& operation, std::exception_ptr error) {
  operation.error_ = std::move(error);
  operation.is_done_.store(true, std::memory_order_release);
  if (sleepers_ > 0) done_.notify_all();
  for (auto& callback : std::exchange(operation.callbacks_, {})) {
    executor_->post(std::move(callback));
  }
}

/// Lets go of an operation. What it keeps, the caller's tensors among it, may take locks when it
/// goes: Python's are freed under Python's lock, whose holder may be waiting for ours.
void OperationQueue::drop(Lock& lock, std::shared_ptr<QueuedOperation> operation) {
  if (operation.use_count() > 1) {
    const DefersRelease guard;  // the others may let go of it this moment
    operation.reset();
    return;
  }
  lock.unlock();
  operation.reset();
  lock.lock();
}

void OperationQueue::wait(QueuedOperation& operation,
                          std::optional<std::chrono::milliseconds> limit) {
  // Who runs the operation cannot leave before it ends, and it may take any time while it moves: so
  // somebody in a hurry lets the thread.
  bool may_run = !limit;
  std::optional<internal::Deadline> deadline;  // none: the clock need not be read
  if (limit) deadline = internal::Deadline::after(*limit);
  Lock lock(mutex_);
  const auto has_thread = [this] {
    try {
      call_thread(true);
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  };
  // When none can be had: late is better than never.
  if (!may_run && !operation.is_done()) may_run = !has_thread();
  int yields_left = kYields;
  while (!operation.is_done()) {
    if (may_run && can_run()) {
      run_next(lock);
    } else if (yields_left-- > 0) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (deadline && deadline->has_passed()) {
      static_cast<void>(has_thread());  // it may have been for this caller alone to run it
      throw TimeoutError(std::string(to_string(operation.collective.kind)) +
                         " Timed out waiting: it has not ended within the " +
                         std::to_string(limit->count()) +
                         " ms that the caller would wait; it goes on");
    } else {
      ++sleepers_;
      if (deadline) {
        done_.wait_for(lock, deadline->left());
      } else {
        done_.wait(lock);
      }
      --sleepers_;
    }
  }
  hand_over();
}

void OperationQueue::add_callback(QueuedOperation& operation, std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!operation.is_done()) {
      operation.callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void OperationQueue::fail_all(const std::exception_ptr& error) {
  Lock lock(mutex_);
  if (failure_ == nullptr) failure_ = error;
  end_queued(lock, failure_);
}

void OperationQueue::end_queued(Lock& lock, const std::exception_ptr& error) {
  while (!queue_.empty()) {
    std::shared_ptr<QueuedOperation> operation = std::move(queue_.front());
    queue_.pop_front();
    finish(*operation, in_operation(title_of(*operation), error));
    drop(lock, std::move(operation));
  }
}

bool OperationQueue::drain(std::chrono::milliseconds limit) {
  const auto deadline = internal::Deadline::after(limit);
  Lock lock(mutex_);
  while (is_busy_ || !queue_.empty()) {
    if (can_run()) {
      run_next(lock);
    } else if (deadline.has_passed() || runner_ == std::this_thread::get_id()) {
      return false;
    } else {
      ++sleepers_;
      done_.wait_for(lock, deadline.left());
      --sleepers_;
    }
  }
  return true;
}

void OperationQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void OperationQueue::stop() {
  std::thread thread;
  {
    Lock lock(mutex_);
    is_closed_ = true;
    thread = thread_.stop();
    if (!queue_.empty()) {
      end_queued(lock, std::make_exception_ptr(
                           InvalidArgument("the group was shut down before this operation began")));
    }
  }
  internal::join_or_let_go(std::move(thread));
}

void OperationQueue::work() {
  const DefersRelease guard;
  Lock lock(mutex_);
  while (!thread_.is_stopped()) {
    if (can_run()) {
      run_next(lock);
      continue;
    }
    // A queue that another thread is busy with for long may need this one when that is done.
    const bool stays = thread_.rest(
        lock, [this] { return can_run(); }, [this] { return past_count_; },
        [this] { return is_busy_ || !queue_.empty(); });
    if (!stays) return;
  }
}

std::shared_ptr<QueuedOperation> OperationQueue::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

std::vector<PastOperation> OperationQueue::past() const {
  const std::lock_guard lock(mutex_);
  std::vector<PastOperation> result;
  const std::uint64_t kept = std::min<std::uint64_t>(past_count_, past_.size());
  for (std::uint64_t i = past_count_ - kept; i < past_count_; ++i) {
    result.push_back(past_[i % past_.size()]);
  }
  return result;
}

std::uint64_t OperationQueue::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

}  // namespace chainmail::ops
