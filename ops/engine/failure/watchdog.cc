// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/failure/watchdog.h"

#include <chrono>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/threads/thread.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::ops {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr int kIdleRounds = 20;

}  // namespace

void Watchdog::wake() noexcept {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([self = shared_from_this()] { self->watch(); });
    } catch (const std::exception& e) {
      // Operations work without: only disagreements are then seen later, by the time limit.
      if (!std::exchange(has_warned_, true)) {
        internal::log_line(internal::LogLevel::kWarning,
                           std::string("cannot start the thread that looks after slow "
                                       "operations, will try again: ") +
                               e.what());
      }
      return;
    }
  }
  is_asleep_.store(false);
  changed_.notify_all();
}

void Watchdog::watch() {
  const DefersRelease guard;
  std::map<std::shared_ptr<PlannedOperation>, int> rounds;
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    changed_.wait_for(lock, kPeriod, [this] { return is_stopping_; });
    if (is_stopping_) return;
    lock.unlock();
    std::map<std::shared_ptr<PlannedOperation>, int> now;
    std::vector<LongOperation> long_ones;
    for (auto& operation : running_()) {
      const auto seen = rounds.find(operation);
      const int round = seen == rounds.end() ? 0 : seen->second + 1;
      if (round > 0) {
        long_ones.push_back({operation, round});
      }
      now.emplace(std::move(operation), round);
    }
    rounds = std::move(now);
    idle = rounds.empty() ? idle + 1 : 0;
    if (!long_ones.empty()) ask_(long_ones);
    lock.lock();
    if (idle > kIdleRounds && !is_stopping_) {
      // Whoever begins an operation sets it running before it looks at the flag; we set the flag
      // before we look for a running operation. One of us sees the other.
      is_asleep_.store(true);
      if (running_().empty()) {
        thread_.detach();  // wake() makes another
        return;
      }
      is_asleep_.store(false);
      idle = 0;
    }
  }
}

void Watchdog::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  internal::join_or_let_go(std::move(thread));
}

void Watchdog::forget_thread() noexcept {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace chainmail::ops
