// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A collective on a stream, from its issue to its end.
//
// Any thread.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "ops/core/failure/failure_state.h"
#include "ops/device/device_memory.h"

namespace chainmail::ops {

/// A collective whose work is on a stream.
class DeviceOperation {
 public:
  virtual ~DeviceOperation() = default;
  /// The device has finished it, or it has failed. One captured into a graph is always done.
  virtual bool is_done() noexcept = 0;
  /// Blocks the host until done; throws the group's error, or TimeoutError when `timeout` passes
  /// first (the operation goes on).
  virtual void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;
  /// Null while running and after success.
  virtual std::exception_ptr error() const = 0;
  /// Once done without error: a result on the 16-bit wire was infinite or NaN. Equal on all ranks.
  virtual bool has_nonfinite() const noexcept = 0;
};

/// What operations use for as long as they are held, which may be longer than their group.
struct DeviceResources {
  DeviceResources(DeviceApi& device_api, int device_index)
      : api(device_api), device(device_index), events(device_api), words(device_api) {}
  DeviceApi& api;
  const int device;
  EventPool events;
  PinnedWords words;
  FailureState failure;
};

class IssuedOperation final : public DeviceOperation {
 public:
  IssuedOperation(std::shared_ptr<DeviceResources> resources, std::string text,
                  internal::Deadline deadline);
  ~IssuedOperation() override;
  IssuedOperation(const IssuedOperation&) = delete;
  IssuedOperation& operator=(const IssuedOperation&) = delete;

  bool is_done() noexcept override;
  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  std::exception_ptr error() const override;
  bool has_nonfinite() const noexcept override;

  /// Where kernels tell of infinities and NaN.
  std::uint32_t* flag() const noexcept { return flag_; }
  DeviceEvent end() const noexcept { return end_; }
  const std::string& text() const noexcept { return text_; }
  bool is_late() const { return deadline_.has_passed(); }
  /// Its work is part of a graph and may run any number of times: nobody waits for it.
  void set_captured() noexcept { is_captured_ = true; }

 private:
  const std::shared_ptr<DeviceResources> resources_;
  const std::string text_;
  const internal::Deadline deadline_;
  DeviceEvent end_;
  std::uint32_t* flag_ = nullptr;
  bool is_captured_ = false;
  std::atomic<bool> has_ended_{false};
};

/// Keeps operations in order whatever streams they are given. One thread at a time.
class StreamOrder {
 public:
  /// What is queued on `stream` next comes after the operation before.
  void follow(DeviceApi& api, DeviceStream stream, std::uint64_t capture) const;
  /// `operation` ends with what has been queued on `stream`.
  void end_with(DeviceApi& api, std::shared_ptr<IssuedOperation> operation, DeviceStream stream,
                std::uint64_t capture);

 private:
  std::shared_ptr<IssuedOperation> last_;
  DeviceStream stream_;
  std::uint64_t capture_ = 0;
};

}  // namespace chainmail::ops
