// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/torch_backends/torch_device_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/element_type.h"

namespace chainmail::internal {
namespace {

class QueuedOperation final : public ops::DeviceOperation {
 public:
  QueuedOperation(const c10::Stream& stream, std::chrono::milliseconds limit)
      : end_(stream.device_type()), limit_(limit) {
    end_.record(stream);
  }
  bool is_done() noexcept override {
    try {
      return error() != nullptr || end_.query();
    } catch (const std::exception& failure) {  // of the device
      const std::lock_guard lock(mutex_);
      error_ = std::make_exception_ptr(CudaError(failure.what(), 0));
      return true;
    }
  }
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    const Deadline deadline = Deadline::after(timeout.value_or(limit_));
    while (!is_done()) {
      if (deadline.has_passed()) throw TimeoutError("torch's stream did not end in time");
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    if (const auto failed = error()) std::rethrow_exception(failed);
  }
  std::exception_ptr error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  bool has_nonfinite() const noexcept override { return false; }

 private:
  c10::Event end_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  const std::chrono::milliseconds limit_;
};

}  // namespace

TorchDeviceGroup::TorchDeviceGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
                                   std::chrono::milliseconds timeout)
    : device_(device),
      timeout_(timeout),
      name_(backend->getBackendName()),
      backend_(std::move(backend)) {
  options_.device = device.index();
}

TorchDeviceGroup::~TorchDeviceGroup() {
  try {
    shutdown();
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning, "ending torch's " + name_ + ": " + failure.what());
  }
}

std::shared_ptr<ops::DeviceOperation> TorchDeviceGroup::issue(const ops::Collective& collective,
                                                              ops::DeviceStream stream) {
  if (collective.kind != ops::OpKind::kAllReduce) {
    throw InvalidArgument("communicator '" + name_ + "' does not carry " +
                          to_string(collective.kind) + "; use one of Chainmail's own");
  }
  const c10::Stream current = current_stream(stream);
  c10d::AllreduceOptions how;
  how.reduceOp = to_torch_reduce_op(collective.reduce_op, name_);
  how.asyncOp = false;  // on the current stream
  std::vector<at::Tensor> tensors{
      at::for_blob(collective.output, {static_cast<std::int64_t>(collective.count)})
          .options(at::TensorOptions(scalar_type_of(collective.dtype)).device(device_))
          .target_device(device_)
          .make_tensor()};
  const std::lock_guard lock(mutex_);
  if (!backend_) throw InvalidArgument("torch's " + name_ + " is shut down");
  if (collective.count != 0) {
    // Torch returns no Work for what is in order with the stream.
    if (const auto work = backend_->allreduce(tensors, how)) work->wait();
  }
  return std::make_shared<QueuedOperation>(current, timeout_);
}

std::shared_ptr<ops::DeviceOperation> TorchDeviceGroup::issue_together(
    std::span<const ops::Collective> /*transfers*/, ops::DeviceStream /*stream*/) {
  throw InvalidArgument("communicator '" + name_ +
                        "' does not send and receive; use one of Chainmail's own");
}

std::shared_ptr<ops::DeviceOperation> TorchDeviceGroup::mark(ops::DeviceStream stream,
                                                             std::chrono::milliseconds limit) {
  return std::make_shared<QueuedOperation>(current_stream(stream), limit);
}

c10::Stream TorchDeviceGroup::current_stream(ops::DeviceStream stream) const {
  const c10::impl::VirtualGuardImpl device(device_.type());
  const c10::Stream current = device.getStream(device_);
  if (device.getStreamNativeHandle(current) != stream.handle) {
    throw InvalidArgument("torch's " + name_ +
                          " works on the current stream; make the given one current");
  }
  return current;
}

std::unique_ptr<ops::DevicePack> TorchDeviceGroup::make_pack(
    std::span<const ops::PackedTensor> /*tensors*/) {
  throw InvalidArgument("communicator '" + name_ + "' has no kernels; use one of Chainmail's own");
}

std::shared_ptr<std::byte> TorchDeviceGroup::allocate(std::size_t bytes) {
  const auto memory = std::make_shared<at::Tensor>(
      at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device_)));
  return {memory, static_cast<std::byte*>(memory->data_ptr())};
}

void TorchDeviceGroup::shutdown() {
  const std::lock_guard lock(mutex_);
  if (!backend_) return;
  const auto ending = std::exchange(backend_, nullptr);
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  ending->shutdown();
}

}  // namespace chainmail::internal
