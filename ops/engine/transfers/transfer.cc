// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/transfers/transfer.h"

#include <utility>

#include "ops/core/error_text.h"
#include "ops/engine/failure/rank_status.h"
#include "ops/engine/transfers/transfers.h"

namespace chainmail::ops {

void TransferOperation::wait(std::optional<std::chrono::milliseconds> limit) {
  if (!is_done()) owner_->wait(*this, limit);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void TransferOperation::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool TransferOperation::sleep_until_done(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, limit, [this] { return is_done(); });
}

std::vector<std::function<void()>> TransferOperation::end(std::exception_ptr error) {
  if (error != nullptr) error = in_operation(title_of(*this), error);
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  is_done_.store(true, std::memory_order_release);
  ended_.notify_all();
  return std::exchange(callbacks_, {});
}

}  // namespace chainmail::ops
