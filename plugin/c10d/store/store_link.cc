// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_link.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <any>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ops/engine/failure/rendezvous_news.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {
namespace {

constexpr char kNewsPrefix[] = "chainmail";
constexpr std::chrono::milliseconds kGetLimit{500};
// How long the process that serves a store waits for ranks that are about to leave.
constexpr std::chrono::seconds kLeaveLimit{1};
constexpr std::chrono::milliseconds kLeavePause{2};

}  // namespace

std::shared_ptr<StoreLink> StoreLink::to(const c10::intrusive_ptr<c10d::Store>& base) {
  static std::mutex mutex;
  static std::map<const c10d::Store*, std::weak_ptr<StoreLink>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  auto& known = all[base.get()];
  auto link = known.lock();
  if (!link || link->thread_.is_of_other_process()) {
    link = std::make_shared<StoreLink>(base);
    known = link;
  }
  return link;
}

StoreLink::StoreLink(const c10::intrusive_ptr<c10d::Store>& base)
    : base_(base), thread_(base), users_(StoreUsers::of(*base)) {}

void StoreLink::run_or_post(std::function<void(c10d::Store&)> task) {
  thread_.run_or_post([task = std::move(task)](c10d::Store& store) -> std::any {
    task(store);
    return {};
  });
}

void StoreLink::set(const std::string& key, const std::string& value) {
  run_or_post([key, bytes = std::vector<std::uint8_t>(value.begin(), value.end())](
                  c10d::Store& store) { store.set(key, bytes); });
}

void StoreLink::remove(const std::string& key) {
  run_or_post([key](c10d::Store& store) { store.deleteKey(key); });
}

std::optional<std::string> StoreLink::try_get(const std::string& key, Deadline deadline) {
  auto answer = thread_.run(
      [key](c10d::Store& store) -> std::any { return read_if_there(store, key); }, deadline);
  return std::any_cast<std::optional<std::string>>(std::move(answer));
}

c10::intrusive_ptr<c10d::Store> StoreLink::clone(Deadline deadline) {
  return std::any_cast<c10::intrusive_ptr<c10d::Store>>(
      thread_.run([](c10d::Store& store) -> std::any { return clone_of(store); }, deadline));
}

void StoreLink::enter() {
  if (users_) users_->enter();
}

void StoreLink::leave(const std::string& left, bool has_failed) noexcept {
  if (!users_) return;
  try {
    const auto limit = Deadline::after(kLeaveLimit);
    for (const std::string& key : users_->leave(left, has_failed)) {
      while (!limit.has_passed() && try_get(key, limit)) std::this_thread::sleep_for(kLeavePause);
    }
  } catch (const std::exception& error) {
    log_line(LogLevel::kInfo,
             "did not wait for ranks that leave the store: " + std::string(error.what()));
  }
}

std::shared_ptr<ops::FailureNews> StoreLink::news() {
  const std::lock_guard lock(news_mutex_);
  if (auto news = news_.lock()) return news;
  auto news = std::make_shared<ops::RendezvousNews>(std::make_shared<StoreRendezvous>(
      c10::make_intrusive<c10d::PrefixStore>(kNewsPrefix, base_)));
  news_ = news;
  return news;
}

std::string StoreLink::news_key_of(const std::string& group) {
  return std::string(kNewsPrefix) + "/" + ops::RendezvousNews::key_of(group);
}

std::optional<std::string> read_if_there(c10d::Store& store, const std::string& key) {
  // The key may be deleted between check() and get(), and then get() would wait, with a line on
  // stderr from a TCPStore. compareSet() with values that never match is one step, and returns the
  // expected value where there is no such key.
  if (dynamic_cast<c10d::TCPStore*>(&store) != nullptr ||
      dynamic_cast<c10d::HashStore*>(&store) != nullptr) {
    const std::vector<std::uint8_t> nothing = {'\0', 'n', 'o', 'n', 'e'};
    const auto bytes = store.compareSet(key, nothing, nothing);
    if (bytes == nothing) return std::nullopt;
    return std::string(bytes.begin(), bytes.end());
  }
  if (!store.check({key})) return std::nullopt;
  std::optional<c10d::StoreTimeoutGuard> limit;
  if (!is_written_in_python(store)) limit.emplace(store, kGetLimit);  // that is the caller's own
  try {
    const auto bytes = store.get(key);
    return std::string(bytes.begin(), bytes.end());
  } catch (const std::exception&) {
    if (store.check({key})) throw;
    return std::nullopt;
  }
}

}  // namespace chainmail::internal
