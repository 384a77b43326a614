// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/callbacks/callback_executor.h"

#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::ops {
namespace {

constexpr std::chrono::seconds kRestTime{2};

// Whose thread this is.
thread_local const CallbackExecutor* own_executor = nullptr;

void run(CallbackExecutor::Task task) noexcept {
  if (!UserCodeGate::enter()) {
    // What it would touch is going or gone: not even its destructor may run.
    static_cast<void>(new CallbackExecutor::Task(std::move(task)));
    return;
  }
  task();
  task = nullptr;
  UserCodeGate::leave();
}

}  // namespace

CallbackExecutor::~CallbackExecutor() {
  // No thread is left, since each keeps this object.
  for (Task& task : tasks_) run(std::move(task));
}

bool CallbackExecutor::is_own_thread() const noexcept { return own_executor == this; }

void CallbackExecutor::post(Task task) noexcept {
  const Lock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (is_stopped_) return;
  if (resting_ > 0) {
    work_.notify_one();
  } else if (running_ == threads_) {
    start_thread();  // where none can be had, a running one, drain() or stop() gets to it
  }
}

bool CallbackExecutor::start_thread() noexcept {
  try {
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  } catch (const std::exception& failure) {
    internal::log_line(internal::LogLevel::kWarning,
                       std::string("cannot start the thread for callbacks: ") + failure.what());
    return false;
  }
  ++threads_;
  return true;
}

void CallbackExecutor::work() {
  own_executor = this;
  Lock lock(mutex_);
  for (;;) {
    if (tasks_.empty()) {
      if (is_stopped_ || !rest(lock)) break;
    } else if (is_taken_ && Clock::now() < turn_begin_ + kPatience) {
      ++resting_;
      work_.wait_until(lock, turn_begin_ + kPatience);
      --resting_;
    } else {
      run_next(lock);
    }
  }
  --threads_;
  done_.notify_all();
}

void CallbackExecutor::run_next(Lock& lock) {
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  const std::uint64_t turn = ++turn_;
  turn_begin_ = Clock::now();
  is_taken_ = true;
  ++running_;
  if (!tasks_.empty() && !is_stopped_ && running_ == threads_) {
    start_thread();  // it takes over when this one takes long
  }
  lock.unlock();
  run(std::move(task));
  lock.lock();
  --running_;
  if (turn_ == turn) is_taken_ = false;
  if (running_ == 0 && tasks_.empty()) done_.notify_all();
}

/// Waits for tasks; false when there have been none for long.
bool CallbackExecutor::rest(Lock& lock) {
  ++resting_;
  const bool is_called =
      work_.wait_for(lock, kRestTime, [this] { return is_stopped_ || !tasks_.empty(); });
  --resting_;
  return is_called;
}

bool CallbackExecutor::drain(std::chrono::milliseconds limit) {
  if (is_own_thread()) return false;
  Lock lock(mutex_);
  while (threads_ == 0 && !tasks_.empty()) {
    run_next(lock);  // there was no thread to be had
  }
  return done_.wait_for(lock, limit, [this] { return running_ == 0 && tasks_.empty(); });
}

void CallbackExecutor::stop(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  is_stopped_ = true;
  work_.notify_all();
  const int own = is_own_thread() ? 1 : 0;
  const bool has_ended = done_.wait_for(lock, limit, [&] { return threads_ == own; });
  while (has_ended && own == 0 && !tasks_.empty()) run_next(lock);
  if (!has_ended) {
    internal::log_line(internal::LogLevel::kWarning,
                       "a callback has not ended within " + std::to_string(limit.count()) +
                           " ms of its group's end and goes on without it");
  }
}

void CallbackExecutor::forget_threads() noexcept {
  is_stopped_ = true;
  threads_ = 0;
  // What the tasks would touch is the parent's.
  static_cast<void>(new std::deque<Task>(std::move(tasks_)));
}

}  // namespace chainmail::ops
