// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/operation_list.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/deadline.h"

namespace chainmail::internal {

bool OperationList::is_done() const noexcept {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->is_done(); });
}

void OperationList::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!timeout) {
    for (const auto& part : parts_) part->wait();
    return;
  }
  const Deadline deadline = Deadline::after(*timeout);
  for (const auto& part : parts_) part->wait(deadline.left());
}

std::exception_ptr OperationList::error() const {
  for (const auto& part : parts_) {
    if (auto error = part->error()) return error;
  }
  return nullptr;
}

void OperationList::on_done(std::function<void()> callback) {
  if (parts_.empty()) {
    callback();
    return;
  }
  struct Countdown {
    std::atomic<std::size_t> left;
    std::function<void()> callback;
  };
  const auto countdown = std::make_shared<Countdown>();
  countdown->left = parts_.size();
  countdown->callback = std::move(callback);
  for (const auto& part : parts_) {
    part->on_done([countdown, keep = shared_from_this()] {
      if (countdown->left.fetch_sub(1, std::memory_order_acq_rel) == 1) countdown->callback();
    });
  }
}

}  // namespace chainmail::internal
