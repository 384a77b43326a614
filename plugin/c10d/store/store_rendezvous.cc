// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chainmail::internal {

StoreRendezvous::StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<void> keep)
    : keep_(std::move(keep)), original_(std::move(store)), store_(original_->clone()) {}

void StoreRendezvous::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> StoreRendezvous::try_get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!store_->check({key})) return std::nullopt;
  const auto bytes = store_->get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::string StoreRendezvous::get(const std::string& key, Deadline deadline) {
  constexpr std::chrono::microseconds kLongestPause{20'000};
  std::chrono::microseconds pause{100};
  for (;;) {
    if (auto value = try_get(key)) return std::move(*value);
    if (deadline.has_passed()) {
      throw TimeoutError("the store's key \"" + key +
                         "\", which another rank should have set, did not appear in time");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace chainmail::internal
