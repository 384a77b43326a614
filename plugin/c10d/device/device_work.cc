// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/device/device_work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>

#include "base/log.h"

namespace chainmail::internal {

void keep_for(at::TensorList tensors, c10::Stream stream) noexcept {
  try {
    const c10::impl::VirtualGuardImpl device(stream.device_type());
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined() || !tensor.has_storage()) continue;
      device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
    }
  } catch (const std::exception& failure) {
    log_line(LogLevel::kError, std::string("a collective's memory: ") + failure.what());
  }
}

DeviceWork::DeviceWork(int rank, c10d::OpType type, std::uint64_t sequence,
                       std::shared_ptr<Payload> payload, std::vector<at::Tensor> memory,
                       QueuedOnDevice queued, std::weak_ptr<ops::Group> group)
    : GroupWork(rank, type, sequence, std::move(payload), std::move(group)),
      queued_(std::move(queued)),
      memory_(std::move(memory)) {
  if (!queued_.end) {
    // In order with whatever the caller does next; but memory may be another stream's.
    keep_for(memory_, queued_.stream);
    memory_.clear();
    return;
  }
  try {
    future_ = completed_future();
  } catch (...) {
    keep_for(memory_, queued_.stream);
    throw;
  }
}

// Memory is left only where no stream waits for the operation.
DeviceWork::~DeviceWork() { keep_for(memory_, queued_.stream); }

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::completed_future() const {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      payload_->type(), std::vector<c10::Device>{queued_.stream.device()});
  // The future records where its stream is now.
  const c10::StreamGuard on(queued_.stream);
  future->markCompleted(payload_->value());
  return future;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (const auto limit = limit_of_wait(timeout)) {
    queued_.operation->wait(limit);
  } else if (const auto error = queued_.operation->error()) {
    std::rethrow_exception(error);
  }
  if (queued_.end) follow();
  note_waited();
  return true;
}

void DeviceWork::follow() {
  const c10::Device device = queued_.stream.device();
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  queued_.end->block(current);
  std::vector<at::Tensor> done;  // freed without the lock
  const std::lock_guard lock(mutex_);
  // The stream of the call, whose memory this is, or may use, may run ahead of another one.
  if (current != queued_.caller) keep_for(memory_, queued_.stream);
  done.swap(memory_);
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) future_ = completed_future();
  return future_;
}

}  // namespace chainmail::internal
