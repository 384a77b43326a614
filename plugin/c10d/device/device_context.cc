// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/device/device_context.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

namespace chainmail::internal {

namespace {

constexpr std::chrono::microseconds kPause{50};

// Of high priority: other ranks wait for these operations.
c10::Stream new_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

}  // namespace

DeviceContext::DeviceContext(c10::Device device, std::shared_ptr<ops::DeviceGroup> group)
    : device_(device), stream_(new_stream(device)), group_(std::move(group)) {}

c10::Stream DeviceContext::current_stream() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

c10::Stream DeviceContext::follow_current(c10::Stream stream) const {
  c10::Event ready(device_.type());
  ready.record(current_stream());
  ready.block(stream);
  return stream;
}

c10::Stream DeviceContext::begin(bool is_async) const {
  const c10::Stream current = current_stream();
  return !is_async || current == stream_ ? current : follow_current(stream_);
}

c10::Stream DeviceContext::begin_transfer(const ops::Collective& transfer) const {
  const std::lock_guard lock(mutex_);
  const Direction direction{transfer.kind, transfer.root};
  auto found = transfer_streams_.find(direction);
  if (found == transfer_streams_.end()) {
    c10::Stream stream = new_stream(device_);
    // Torch's pool is a ring: the 33rd stream is the first again.
    if (stream == stream_) stream = new_stream(device_);
    found = transfer_streams_.emplace(direction, stream).first;
  }
  return follow_current(found->second);
}

ops::DeviceStream DeviceContext::native(c10::Stream stream) const {
  return {c10::impl::VirtualGuardImpl(device_.type()).getStreamNativeHandle(stream)};
}

std::shared_ptr<ops::DeviceOperation> DeviceContext::issue(
    std::span<const ops::Collective> collectives, c10::Stream stream) const {
  const ops::Collective& first = collectives.front();
  // A batch of one, too: its peer's may have more.
  if (first.kind == ops::OpKind::kSend || first.kind == ops::OpKind::kRecv) {
    return group_->issue_together(collectives, native(stream));
  }
  return group_->issue(first, native(stream));
}

std::shared_ptr<ops::DeviceOperation> DeviceContext::issue_transfer(const ops::Collective& transfer,
                                                                    c10::Stream stream) const {
  return group_->issue(transfer, native(stream));
}

std::shared_ptr<ops::DeviceOperation> DeviceContext::mark_current_stream(
    std::chrono::milliseconds limit) const {
  return group_->mark(native(current_stream()), limit);
}

std::shared_ptr<const DeviceContext> DeviceContexts::at(c10::Device device) {
  const std::lock_guard lock(mutex_);
  auto& context = contexts_[device.index()];
  if (!context) {
    try {
      const int number = static_cast<int>(contexts_.size()) - 1;
      context = std::make_shared<const DeviceContext>(device, maker_(device, number));
    } catch (...) {
      contexts_.erase(device.index());
      throw;
    }
  }
  return context;
}

std::vector<std::shared_ptr<const DeviceContext>> DeviceContexts::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const DeviceContext>> contexts;
  for (const auto& [index, context] : contexts_) contexts.push_back(context);
  return contexts;
}

void DeviceContexts::shutdown() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, context] : contexts_) context->group().shutdown();
}

void wait_for_current_stream(c10::Device device, const std::function<void()>& check) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  if (!device.has_index()) device = devices.getDevice();
  // Asking a GPU that this process has not used would take some of its memory for nothing.
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(device.type());
  if (!hooks.hasPrimaryContext(device.index())) return;
  c10::Event end(device.type());
  end.record(devices.getStream(device));
  while (!end.query()) {
    check();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace chainmail::internal
