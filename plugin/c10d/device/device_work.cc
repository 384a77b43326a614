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

DeviceWork::DeviceWork(int rank, c10d::OpType type, std::uint64_t sequence,
                       std::shared_ptr<Payload> payload, std::vector<at::Tensor> inputs,
                       QueuedOnDevice queued, std::weak_ptr<ops::Group> group)
    : Work(rank, type),
      sequence_(sequence),
      payload_(std::move(payload)),
      queued_(std::move(queued)),
      group_(std::move(group)) {
  if (!queued_.end) return;  // in order with whatever the caller does next
  future_ = completed_future();
  kept_ = std::move(inputs);
  kept_.insert(kept_.end(), payload_->results.begin(), payload_->results.end());
  kept_.insert(kept_.end(), payload_->keep.begin(), payload_->keep.end());
}

DeviceWork::~DeviceWork() {
  if (kept_.empty()) return;
  // Nobody has waited. The allocator keeps the memory until the operation is over.
  try {
    const c10::impl::VirtualGuardImpl device(queued_.stream.device_type());
    for (const at::Tensor& tensor : kept_) {
      device.recordDataPtrOnStream(tensor.storage().data_ptr(), queued_.stream);
    }
  } catch (const std::exception& failure) {
    log_line(LogLevel::kError, std::string("a collective's memory: ") + failure.what());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::completed_future() const {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      payload_->type(), std::vector<c10::Device>{queued_.stream.device()});
  // The future records where its stream is now.
  const c10::StreamGuard on(queued_.stream);
  future->markCompleted(payload_->value());
  return future;
}

bool DeviceWork::isCompleted() { return queued_.operation->is_done(); }

std::exception_ptr DeviceWork::exception() const { return queued_.operation->error(); }

bool DeviceWork::isSuccess() const { return queued_.operation->is_done() && !exception(); }

std::vector<at::Tensor> DeviceWork::result() {
  TORCH_CHECK(payload_->lists.size() <= 1,
              "chainmail: result() does not support a list of lists, use getFuture()->value()");
  return payload_->results;
}

void DeviceWork::synchronize() { wait(); }

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    queued_.operation->wait(timeout);
  } else if (const auto error = queued_.operation->error()) {
    std::rethrow_exception(error);
  }
  if (queued_.end) {
    const c10::Device device = queued_.stream.device();
    queued_.end->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
  }
  std::vector<at::Tensor> done;  // freed without the lock
  const std::lock_guard lock(mutex_);
  done.swap(kept_);
  return true;
}

void DeviceWork::abort() {
  if (!queued_.operation->is_done()) abort_group(group_, opType_, sequence_, rank_);
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) future_ = completed_future();
  return future_;
}

}  // namespace chainmail::internal
