// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/operation/device_watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace chainmail::ops {
namespace {

// A hundred looks a second take less than a thousandth of a core; a failure is found soon enough.
constexpr std::chrono::milliseconds kPeriod{10};

}  // namespace

void DeviceWatchdog::add(std::shared_ptr<IssuedOperation> operation) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  pending_.push_back(std::move(operation));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

bool DeviceWatchdog::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(pending_.begin(), pending_.end(),
                     [](const auto& operation) { return operation->is_done(); });
}

void DeviceWatchdog::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceWatchdog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !pending_.empty(); });
    if (is_stopping_) return;
    // Operations end in the order of their issue, but for transfers on other streams.
    std::list<std::shared_ptr<IssuedOperation>> ended;
    for (auto next = pending_.begin(); next != pending_.end();) {
      const auto operation = next++;
      if ((*operation)->is_done()) ended.splice(ended.end(), pending_, operation);
    }
    const std::list<std::shared_ptr<IssuedOperation>> running = pending_;
    lock.unlock();
    ended.clear();  // may free what the caller's operations held
    std::exception_ptr error = ask_();
    for (const auto& operation : running) {
      if (error != nullptr) break;
      if (operation->is_late()) {
        error = std::make_exception_ptr(TimeoutError(
            operation->text() +
            " has not ended in time on the device; a rank has not issued it, or the network "
            "between the ranks has stopped"));
      }
    }
    if (error != nullptr) report_(error);
    lock.lock();
    if (error != nullptr) {
      pending_.clear();  // all of them have failed
      continue;
    }
    changed_.wait_for(lock, kPeriod, [this] { return is_stopping_; });
  }
}

}  // namespace chainmail::ops
