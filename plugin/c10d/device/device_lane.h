// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a backend has of each GPU that it is given tensors of: a stream of its own and the engine's
// group on that device. Streams and events are c10's, for any type of device, so that nothing here
// needs CUDA's headers, and tests need no GPU.
//
// Thread-safe.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ops/engine/device/device_group.h"

namespace chainmail::internal {

class DeviceLane {
 public:
  DeviceLane(c10::Device device, std::shared_ptr<ops::DeviceGroup> group);

  c10::Device device() const noexcept { return device_; }
  ops::DeviceGroup& group() const noexcept { return *group_; }

  /// The stream for an operation on what the caller's current stream has written so far: the lane's
  /// own, made to wait for it, or that current stream itself when the call is not asynchronous.
  c10::Stream begin(bool is_async) const;
  /// Queues `transfers`, or the only collective, on a stream that begin() gave.
  std::shared_ptr<ops::DeviceOperation> issue(std::span<const ops::Collective> collectives,
                                              c10::Stream stream) const;

 private:
  const c10::Device device_;
  const c10::Stream stream_;
  const std::shared_ptr<ops::DeviceGroup> group_;
};

class DeviceLanes {
 public:
  /// Makes the group on a device that is the `number`-th of this backend, from 0: ranks use their
  /// devices in the same order, whatever their indices.
  using Maker = std::function<std::shared_ptr<ops::DeviceGroup>(c10::Device device, int number)>;
  explicit DeviceLanes(Maker maker) : maker_(std::move(maker)) {}

  /// The lane of `device`, made when first asked for. Throws what the maker throws.
  std::shared_ptr<const DeviceLane> at(c10::Device device);
  /// Waits for what was issued and ends the groups.
  void shutdown();

 private:
  const Maker maker_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<const DeviceLane>> lanes_;
};

}  // namespace chainmail::internal
