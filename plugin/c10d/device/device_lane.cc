// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/device/device_lane.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace chainmail::internal {

// Of high priority: what others wait for should not queue behind what they do meanwhile.
DeviceLane::DeviceLane(c10::Device device, std::shared_ptr<ops::DeviceGroup> group)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true)),
      group_(std::move(group)) {}

c10::Stream DeviceLane::begin(bool is_async) const {
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  if (!is_async || current == stream_) return current;
  c10::Event ready(device_.type());
  ready.record(current);
  ready.block(stream_);
  return stream_;
}

std::shared_ptr<ops::DeviceOperation> DeviceLane::issue(
    std::span<const ops::Collective> collectives, c10::Stream stream) const {
  const ops::DeviceStream native{
      c10::impl::VirtualGuardImpl(device_.type()).getStreamNativeHandle(stream)};
  if (collectives.size() == 1) return group_->issue(collectives.front(), native);
  return group_->issue_together(collectives, native);
}

std::shared_ptr<const DeviceLane> DeviceLanes::at(c10::Device device) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[device.index()];
  if (!lane) {
    try {
      const int number = static_cast<int>(lanes_.size()) - 1;
      lane = std::make_shared<const DeviceLane>(device, maker_(device, number));
    } catch (...) {
      lanes_.erase(device.index());
      throw;
    }
  }
  return lane;
}

void DeviceLanes::shutdown() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, lane] : lanes_) lane->group().shutdown();
}

}  // namespace chainmail::internal
