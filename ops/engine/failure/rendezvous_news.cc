// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/failure/rendezvous_news.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads/thread.h"
#include "ops/core/error_text.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::ops {
namespace {

// Often enough for "every rank knows within a second", seldom enough for a store with many ranks.
constexpr std::chrono::milliseconds kPeriod{150};

// How long one look, whose end a destructor waits for, and one announcement, which a failed
// operation waits for, may ask a store that does not answer.
constexpr std::chrono::milliseconds kLookLimit{500};
constexpr std::chrono::milliseconds kTellLimit{100};

// Changes with every announcement.
constexpr char kLatestKey[] = "latest news";

}  // namespace

std::string RendezvousNews::key_of(const std::string& group) { return "news/" + group; }

/// What the watching thread works on; it owns this together with the RendezvousNews, which may be
/// gone before the thread is.
struct RendezvousNews::Poller {
  using Groups = std::map<std::string, std::shared_ptr<FailureState>>;

  explicit Poller(std::shared_ptr<Rendezvous> where) : rendezvous(std::move(where)) {}
  void run();
  void look(const Groups& subscribed);
  void look_at(const Groups& subscribed, internal::Deadline deadline);
  bool has_announced(const std::string& group);

  const std::shared_ptr<Rendezvous> rendezvous;
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::condition_variable changed;
  Groups groups;
  std::atomic<bool> has_newcomers{false};  ///< who may have missed what was announced before
  bool is_stopping = false;
  std::thread thread;
  std::optional<std::string> latest;  ///< the thread's own
};

RendezvousNews::RendezvousNews(std::shared_ptr<Rendezvous> rendezvous)
    : poller_(std::make_shared<Poller>(std::move(rendezvous))) {}

RendezvousNews::~RendezvousNews() {
  // A forked child has a copy of the thread's share in the Poller and no thread: so the condition
  // variable, whose destruction would wait for that thread for ever, stays.
  if (is_forked()) return;
  {
    const std::lock_guard lock(poller_->mutex);
    poller_->is_stopping = true;
  }
  poller_->changed.notify_all();
  internal::join_or_let_go(std::move(poller_->thread));  // a listener's, perhaps
}

// The mutex may be held for ever in a forked child.
bool RendezvousNews::is_forked() const noexcept { return poller_->process != ::getpid(); }

void RendezvousNews::subscribe(const std::string& group, const std::vector<int>& /*global_ranks*/,
                               std::shared_ptr<FailureState> state) {
  if (is_forked()) return;
  const std::lock_guard lock(poller_->mutex);
  std::swap(poller_->groups[group], state);
  poller_->has_newcomers = true;
  if (!poller_->thread.joinable()) {
    poller_->thread = std::thread([poller = poller_] { poller->run(); });
  }
  poller_->changed.notify_all();
}

void RendezvousNews::unsubscribe(const std::string& group) {
  if (is_forked()) return;
  // Listeners go with their state, and what they own: not under the lock.
  Poller::Groups::node_type removed;
  const std::lock_guard lock(poller_->mutex);
  removed = poller_->groups.extract(group);
}

void RendezvousNews::announce(const std::string& group, const std::exception_ptr& error) noexcept {
  try {
    if (poller_->has_announced(group)) return;  // the first cause is the true one
    poller_->rendezvous->set(key_of(group), encode_error(error));
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    poller_->rendezvous->set(kLatestKey, group + " at " + std::to_string(now));
  } catch (const std::exception& e) {
    internal::log_line(internal::LogLevel::kWarning,
                       "cannot tell the other ranks that group " + group + " failed: " + e.what());
  }
}

void RendezvousNews::Poller::run() {
  const DefersRelease guard;
  std::unique_lock lock(mutex);
  while (!is_stopping) {
    if (groups.empty()) {
      changed.wait(lock);
      continue;
    }
    Groups subscribed = groups;
    lock.unlock();
    look(subscribed);
    subscribed.clear();
    lock.lock();
    changed.wait_for(lock, kPeriod, [this] { return is_stopping; });
  }
}

bool RendezvousNews::Poller::has_announced(const std::string& group) {
  try {
    return rendezvous->try_get(key_of(group), rendezvous->patience(kTellLimit)).has_value();
  } catch (const TimeoutError&) {
    return false;  // better two causes than none, once the store can be reached again
  }
}

void RendezvousNews::Poller::look(const Groups& subscribed) {
  const auto deadline = rendezvous->patience(kLookLimit);
  const bool must_look = has_newcomers.exchange(false);
  try {
    auto before = std::exchange(latest, rendezvous->try_get(kLatestKey, deadline));
    if (latest != before || must_look) look_at(subscribed, deadline);
  } catch (const std::exception& e) {
    // The store may be gone for good or for a moment; the data path finds out by itself.
    internal::log_line(internal::LogLevel::kInfo,
                       std::string("cannot look for news of groups: ") + e.what());
    has_newcomers = true;  // whatever was not looked at
  }
}

void RendezvousNews::Poller::look_at(const Groups& subscribed, internal::Deadline deadline) {
  for (const auto& [group, state] : subscribed) {
    if (state->has_failed()) continue;
    if (const auto text = rendezvous->try_get(key_of(group), deadline)) {
      state->fail(decode_error(*text));
    }
  }
}

}  // namespace chainmail::ops
