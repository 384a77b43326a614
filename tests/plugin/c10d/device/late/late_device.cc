// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/device/late/late_device.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <stdexcept>

#include "tests/plugin/c10d/device/late/late_allocator.h"

namespace chainmail::testing {
namespace {

constexpr std::size_t kMostDevices = 4;

std::vector<test::FakeLibrary*>& libraries() {
  static std::vector<test::FakeLibrary*> all;
  return all;
}

struct CurrentState {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMostDevices> streams{};
};

CurrentState& current() {
  thread_local CurrentState state;
  return state;
}

// A stream's id is its handle; 0 is the default stream.
ops::DeviceStream native(const c10::Stream& stream) {
  return {reinterpret_cast<void*>(stream.id())};
}

void check(ops::DeviceCode code) {
  if (code != ops::kDeviceSuccess) {
    throw std::runtime_error("late device: error " + std::to_string(code));
  }
}

/// c10's view of the devices.
class LateGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kLateDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kLateDevice, current().device}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current().device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kMostDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current().streams.at(place(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*priority*/) const override {
    ops::DeviceStream stream;
    check(late_device(device.index()).create_stream(stream));
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream.handle));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current().streams.at(place(stream.device())) = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native(stream).handle;
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    test::FakeDevice& device = late_device(stream.device_index());
    ops::DeviceEvent own{*event};
    if (*event == nullptr) check(device.create_event(own));
    *event = own.handle;
    check(device.record(own, native(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    check(late_device(stream.device_index()).wait(native(stream), {event}));
  }
  // Any device will do: they are all one machine's.
  bool queryEvent(void* event) const override {
    return late_device(0).query({event}) == ops::kDeviceSuccess;
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (!libraries().empty()) late_device(0).destroy_event({event});
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    late_allocator().record(memory.get(), stream);
  }

 private:
  static std::size_t place(c10::Device device) {
    return static_cast<std::size_t>(device.has_index() ? device.index() : current().device);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, LateGuard);

}  // namespace

test::FakeDevice& late_device(int index) {
  return libraries().at(static_cast<std::size_t>(index))->device();
}

const test::FakeStream* default_stream(int index) { return late_device(index).default_stream(); }

LateDevices::LateDevices(std::vector<test::FakeLibrary*> all) { libraries() = std::move(all); }

LateDevices::~LateDevices() {
  late_allocator().forget_streams();
  libraries().clear();
}

}  // namespace chainmail::testing
