// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/failure/failure_state.h"

#include <utility>

namespace chainmail::ops {

bool FailureState::fail(std::exception_ptr error) {
  std::vector<std::function<void(const std::exception_ptr&)>> listeners;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != nullptr) return false;
    error_ = std::move(error);
    failed_.store(true, std::memory_order_release);
    listeners.swap(listeners_);
  }
  // Outside the lock: a listener may ask for error(). error_ is never written again.
  for (const auto& listener : listeners) listener(error_);
  return true;
}

void FailureState::rethrow_if_failed() const {
  if (!has_failed()) return;
  if (const auto first = error(); first != nullptr) std::rethrow_exception(first);
}

std::exception_ptr FailureState::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void FailureState::on_failure(std::function<void(const std::exception_ptr&)> listener) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr) {
      listeners_.push_back(std::move(listener));
      return;
    }
  }
  listener(error_);
}

}  // namespace chainmail::ops
