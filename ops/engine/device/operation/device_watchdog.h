// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The watchdog of a device group: a thread that checks operations which have been issued and have
// not completed for NCCL's asynchronous errors, time limits and the group's failure. It reports
// what it finds; its owner ends the group.
//
// Thread-safe. The thread starts with the first operation and sleeps while there is none.

#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "ops/engine/device/operation/device_operation.h"

namespace chainmail::ops {

class DeviceWatchdog {
 public:
  /// Asked while something is under way; what it returns is reported. Must not throw.
  using Ask = std::function<std::exception_ptr()>;
  /// Told of the first failure, once, in the watchdog's thread. Must not throw.
  using Report = std::function<void(std::exception_ptr)>;

  DeviceWatchdog(Ask ask, Report report) : ask_(std::move(ask)), report_(std::move(report)) {}
  ~DeviceWatchdog() { stop(); }
  DeviceWatchdog(const DeviceWatchdog&) = delete;
  DeviceWatchdog& operator=(const DeviceWatchdog&) = delete;

  void add(std::shared_ptr<IssuedOperation> operation);
  /// Nothing is under way.
  [[nodiscard]] bool is_idle();
  void stop() noexcept;

 private:
  void run();

  const Ask ask_;
  const Report report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<IssuedOperation>> pending_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace chainmail::ops
