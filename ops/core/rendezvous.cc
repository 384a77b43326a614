// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/rendezvous.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace chainmail::ops {
namespace {

// A healthy store answers in less than a millisecond, on a busy machine in some ten.
constexpr std::chrono::milliseconds kMoment{250};
constexpr std::chrono::milliseconds kSilentLimit{50};

}  // namespace

std::optional<std::string> Rendezvous::try_get(const std::string& key) {
  try {
    return try_get(key, internal::Deadline::after(kMoment));
  } catch (const TimeoutError&) {
    ++unanswered_;
    return std::nullopt;
  }
}

internal::Deadline Rendezvous::patience(std::chrono::milliseconds limit) const {
  return internal::Deadline::after(is_silent() ? std::min(limit, kSilentLimit) : limit);
}

void LocalRendezvous::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string LocalRendezvous::get(const std::string& key, internal::Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (const auto entry = values_.find(key); entry != values_.end()) return entry->second;
    if (deadline.has_passed()) {
      throw TimeoutError("rendezvous key \"" + key +
                         "\" was not set in time: a rank did not come or failed before");
    }
    changed_.wait_for(lock, deadline.left());
  }
}

std::optional<std::string> LocalRendezvous::try_get(const std::string& key,
                                                    internal::Deadline /*deadline*/) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto entry = values_.find(key); entry != values_.end()) return entry->second;
  return std::nullopt;
}

}  // namespace chainmail::ops
