// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a backend keeps for each GPU that it is given tensors of: a stream for collectives, streams
// for point-to-point operations, and the engine's group on that device. Streams and events are
// c10's, for any type of device, so that nothing here needs CUDA's headers and tests need no GPU.
//
// Thread-safe.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ops/engine/device/device_group.h"

namespace chainmail::internal {

class DeviceContext {
 public:
  DeviceContext(c10::Device device, std::shared_ptr<ops::DeviceGroup> group);

  c10::Device device() const noexcept { return device_; }
  ops::DeviceGroup& group() const noexcept { return *group_; }

  /// The stream for an operation on what the caller's current stream has written so far: the
  /// context's own, made to wait for the current one, or the current stream itself when the call is
  /// not asynchronous.
  c10::Stream begin(bool is_async) const;
  /// Queues the only collective, or a batch of sends and receives, on a stream that begin() gave.
  std::shared_ptr<ops::DeviceOperation> issue(std::span<const ops::Collective> collectives,
                                              c10::Stream stream) const;

  /// The same for a send or receive outside a batch: on a stream for that peer and direction, since
  /// it must not delay anything else.
  c10::Stream begin_transfer(const ops::Collective& transfer) const;
  std::shared_ptr<ops::DeviceOperation> issue_transfer(const ops::Collective& transfer,
                                                       c10::Stream stream) const;

  c10::Stream current_stream() const;
  /// Done when what the caller's current stream has been given is.
  std::shared_ptr<ops::DeviceOperation> mark_current_stream(std::chrono::milliseconds limit) const;

 private:
  using Direction = std::pair<ops::OpKind, int>;  // send or receive, and peer
  c10::Stream follow_current(c10::Stream stream) const;
  ops::DeviceStream native(c10::Stream stream) const;

  const c10::Device device_;
  const c10::Stream stream_;
  const std::shared_ptr<ops::DeviceGroup> group_;
  mutable std::mutex mutex_;
  mutable std::map<Direction, c10::Stream> transfer_streams_;
};

class DeviceContexts {
 public:
  /// Makes the group on the `number`-th device of this backend, from 0: ranks use their devices in
  /// the same order, whatever their indices.
  using Maker = std::function<std::shared_ptr<ops::DeviceGroup>(c10::Device device, int number)>;
  explicit DeviceContexts(Maker maker) : maker_(std::move(maker)) {}

  /// The context of `device`, created on first use. Throws what the maker throws.
  std::shared_ptr<const DeviceContext> at(c10::Device device);
  /// The contexts created so far.
  std::vector<std::shared_ptr<const DeviceContext>> all();
  /// Waits for what was issued and shuts the groups down.
  void shutdown();

 private:
  const Maker maker_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<const DeviceContext>> contexts_;
};

/// Blocks until the current stream of a device without a context has finished its work, calling
/// `check`, which may throw. A device that this process has not used is left alone.
void wait_for_current_stream(c10::Device device, const std::function<void()>& check);

}  // namespace chainmail::internal
