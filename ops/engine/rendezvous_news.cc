// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/rendezvous_news.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "ops/engine/error_text.h"

namespace chainmail::ops {
namespace {

// Often enough for "every rank knows within a second", seldom enough for a store with many ranks.
constexpr std::chrono::milliseconds kPeriod{150};

std::string key_of(const std::string& group) { return "news/" + group; }

}  // namespace

RendezvousNews::RendezvousNews(std::shared_ptr<Rendezvous> rendezvous)
    : rendezvous_(std::move(rendezvous)) {}

RendezvousNews::~RendezvousNews() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void RendezvousNews::subscribe(const std::string& group, const std::vector<int>& /*global_ranks*/,
                               std::shared_ptr<FailureState> state) {
  const std::lock_guard lock(mutex_);
  groups_[group] = std::move(state);
  if (!watcher_.joinable()) {
    watcher_ = std::thread([this] { watch(); });
  }
  changed_.notify_all();
}

void RendezvousNews::unsubscribe(const std::string& group) {
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
}

void RendezvousNews::announce(const std::string& group, const std::exception_ptr& error) noexcept {
  try {
    const std::string key = key_of(group);
    if (!rendezvous_->try_get(key)) {  // the first cause is the true one
      rendezvous_->set(key, encode_error(error));
    }
  } catch (const std::exception& e) {
    internal::log_line(internal::LogLevel::kWarning,
                       "cannot tell the other ranks that group " + group + " failed: " + e.what());
  }
}

void RendezvousNews::watch() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (groups_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto groups = groups_;
    lock.unlock();
    look_once(groups);
    lock.lock();
    changed_.wait_for(lock, kPeriod, [this] { return is_stopping_; });
  }
}

void RendezvousNews::look_once(const std::map<std::string, std::shared_ptr<FailureState>>& groups) {
  for (const auto& [group, state] : groups) {
    if (state->has_failed()) {
      continue;
    }
    try {
      if (const auto text = rendezvous_->try_get(key_of(group))) {
        state->fail(decode_error(*text));
      }
    } catch (const std::exception& e) {
      // The store may be gone for good or for a moment; the data path finds out by itself.
      internal::log_line(internal::LogLevel::kInfo,
                         "cannot look for news of group " + group + ": " + e.what());
    }
  }
}

}  // namespace chainmail::ops
