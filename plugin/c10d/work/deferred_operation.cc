// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/deferred_operation.h"

#include <utility>

#include "base/error.h"

namespace chainmail::internal {

void DeferredOperation::begin(std::shared_ptr<ops::Operation> operation) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    operation_ = operation;
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) operation->on_done(std::move(callback));
}

void DeferredOperation::refuse(std::exception_ptr error, ops::CallbackExecutor& executor) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(error);
    callbacks.swap(callbacks_);
  }
  if (callbacks.empty()) return;
  for (auto& callback : callbacks) executor.post(std::move(callback));
  executor.drain(std::chrono::milliseconds{0});
}

std::shared_ptr<ops::Operation> DeferredOperation::begun() const noexcept {
  const std::lock_guard lock(mutex_);
  return operation_;
}

bool DeferredOperation::is_done() const noexcept {
  const std::lock_guard lock(mutex_);
  return operation_ ? operation_->is_done() : refusal_ != nullptr;
}

void DeferredOperation::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (const auto operation = begun()) {
    operation->wait(timeout);
    return;
  }
  if (const auto refusal = error()) std::rethrow_exception(refusal);
  throw InvalidArgument(
      "this send or receive is part of a batch that has not begun; end the batch (endCoalescing) "
      "before waiting for it");
}

std::exception_ptr DeferredOperation::error() const {
  const std::lock_guard lock(mutex_);
  return operation_ ? operation_->error() : refusal_;
}

void DeferredOperation::on_done(std::function<void()> callback) {
  std::shared_ptr<ops::Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    operation = operation_;
    if (!operation && !refusal_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  operation ? operation->on_done(std::move(callback)) : callback();
}

int DeferredOperation::source_rank() const noexcept {
  const auto operation = begun();
  return operation ? operation->source_rank() : -1;
}

}  // namespace chainmail::internal
