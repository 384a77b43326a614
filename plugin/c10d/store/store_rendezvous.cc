// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_rendezvous.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/threads/poll_until.h"

namespace chainmail::internal {
namespace {

constexpr std::chrono::milliseconds kLastPatience{250};

/// Reads what PrefixStore shows to those that derive from it.
struct PrefixReader : c10d::PrefixStore {
  static const std::string& prefix_of(const c10d::PrefixStore& store) {
    return store.*&PrefixReader::prefix_;
  }
};

}  // namespace

StoreRendezvous::StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<void> keep)
    : keep_(std::move(keep)), store_(std::move(store)) {
  c10::intrusive_ptr<c10d::Store> base = store_;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(base.get())) {
    prefix_.insert(0, PrefixReader::prefix_of(*prefixed) + "/");
    base = prefixed->getUnderlyingStore();
  }
  link_ = StoreLink::to(base);
}

void StoreRendezvous::set(const std::string& key, const std::string& value) {
  link_->set(prefix_ + key, value);
}

std::optional<std::string> StoreRendezvous::try_get(const std::string& key, Deadline deadline) {
  return link_->try_get(prefix_ + key, deadline);
}

void StoreRendezvous::remove(const std::string& key) { link_->remove(prefix_ + key); }

std::string StoreRendezvous::get(const std::string& key, Deadline deadline) {
  std::optional<std::string> value;
  const auto is_set = [&] {
    // Not only until the deadline: a store that is asked at the last moment can still answer.
    const auto patience = std::max<std::chrono::milliseconds>(deadline.left(), kLastPatience);
    value = try_get(key, Deadline::after(patience));
    return value.has_value();
  };
  if (!poll_until(is_set, deadline)) {
    throw TimeoutError("the store's key \"" + key +
                       "\", which another rank should have set, did not appear in time");
  }
  return *std::move(value);
}

}  // namespace chainmail::internal
