// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/device/fake_device.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace chainmail::testing {
namespace {

std::vector<std::string>& calls() {
  static std::vector<std::string> made;
  return made;
}

void note(const std::string& call) { calls().push_back(call); }

std::string name_of(const c10::Stream& stream) { return "s" + std::to_string(stream.id()); }
std::string name_of(const void* event) {
  return "e" + std::to_string(*static_cast<const int*>(event));
}

struct CurrentState {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, 2> streams{};
};

CurrentState& current() {
  thread_local CurrentState state;
  return state;
}

std::size_t place(c10::Device device) {
  return static_cast<std::size_t>(device.has_index() ? device.index() : current().device);
}

/// c10's view of the fake devices.
class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kFakeDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kFakeDevice, current().device}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current().device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current().streams.at(place(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*priority*/) const override {
    static c10::StreamId last = 0;
    return c10::Stream(c10::Stream::UNSAFE, device, ++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current().streams.at(place(stream.device())) = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    static int last = 0;
    if (*event == nullptr) *event = new int(++last);
    note("record " + name_of(*event) + " on " + name_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    note(name_of(stream) + " waits for " + name_of(event));
  }
  bool queryEvent(void* /*event*/) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<int*>(event);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    note("the host waits for device " + std::to_string(device));
  }
  void recordDataPtrOnStream(const c10::DataPtr& /*memory*/,
                             const c10::Stream& stream) const override {
    note("memory kept for " + name_of(stream));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

class FakeOperation final : public ops::DeviceOperation {
 public:
  explicit FakeOperation(std::shared_ptr<const FakeOutcome> outcome)
      : outcome_(std::move(outcome)) {}
  bool is_done() noexcept override { return outcome_->is_done || outcome_->error; }
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    note("the host waits");
    if (outcome_->error) std::rethrow_exception(outcome_->error);
    if (!outcome_->is_done && timeout) throw TimeoutError("too long");
  }
  std::exception_ptr error() const override { return outcome_->error; }
  bool has_nonfinite() const noexcept override { return false; }

 private:
  const std::shared_ptr<const FakeOutcome> outcome_;
};

class FakeGroup final : public ops::DeviceGroup {
 public:
  FakeGroup(int device, std::shared_ptr<const FakeOutcome> outcome) : outcome_(std::move(outcome)) {
    options_.device = device;
  }
  const ops::DeviceGroupOptions& options() const noexcept override { return options_; }
  std::shared_ptr<ops::DeviceOperation> issue(const ops::Collective& collective,
                                              ops::DeviceStream stream) override {
    return queued(to_string(collective.kind), stream);
  }
  std::shared_ptr<ops::DeviceOperation> issue_together(std::span<const ops::Collective> collectives,
                                                       ops::DeviceStream stream) override {
    std::string kinds;
    for (const ops::Collective& collective : collectives) {
      kinds += (kinds.empty() ? "" : " + ") + std::string(to_string(collective.kind));
    }
    return queued(kinds + " together", stream);
  }
  std::shared_ptr<ops::DeviceOperation> mark(ops::DeviceStream stream,
                                             std::chrono::milliseconds /*limit*/) override {
    return queued("mark", stream);
  }
  void prepare(const ops::Collective& collective) override {
    note("prepare " + std::string(to_string(collective.kind)));
  }
  std::unique_ptr<ops::DevicePack> make_pack(
      std::span<const ops::PackedTensor> /*tensors*/) override {
    return nullptr;
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    note("allocate");
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {memory, memory->data()};
  }
  void shutdown() override { note("shutdown of device " + std::to_string(options_.device)); }
  std::exception_ptr error() const override { return outcome_->error; }

 private:
  std::shared_ptr<ops::DeviceOperation> queued(const std::string& what, ops::DeviceStream stream) {
    if (outcome_->issue_error) std::rethrow_exception(outcome_->issue_error);
    note(what + " on s" + std::to_string(reinterpret_cast<std::intptr_t>(stream.handle)));
    return std::make_shared<FakeOperation>(outcome_);
  }

  const std::shared_ptr<const FakeOutcome> outcome_;
  ops::DeviceGroupOptions options_;
};

}  // namespace

std::vector<std::string> take_calls() { return std::exchange(calls(), {}); }

at::Tensor fake_tensor(std::vector<float>& memory, int device) {
  const c10::Device place(kFakeDevice, static_cast<c10::DeviceIndex>(device));
  return at::for_blob(memory.data(), {static_cast<std::int64_t>(memory.size())})
      .options(at::TensorOptions().dtype(at::kFloat).device(place))
      .target_device(place)
      .make_tensor();
}

std::shared_ptr<ops::DeviceGroup> make_fake_group(int device,
                                                  std::shared_ptr<const FakeOutcome> outcome) {
  return std::make_shared<FakeGroup>(device, std::move(outcome));
}

}  // namespace chainmail::testing
