// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_link.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <any>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
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
// How long the process that serves a store stays for ranks that are about to leave.
constexpr std::chrono::seconds kStay{1};
constexpr std::chrono::milliseconds kStayPause{2};
// Of groups that others stay in long after this rank has left.
constexpr std::size_t kMostLeftKeys = 64;

/// Who has a link to which store. Owns none of them.
struct Links {
  std::mutex mutex;
  std::map<const c10d::Store*, std::weak_ptr<StoreLink>> by_store;
};

Links& links() {
  static Links all;
  return all;
}

bool is_listening_at(int fd, std::uint16_t port) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return false;
  }
  sockaddr_storage address{};
  length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  // The port stands at the same place in both.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const bool is_ip = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  return is_ip && ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port) == port;
}

/// Whether this process serves `store`.
bool is_served_here(const c10d::Store& store) {
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(&store);
  if (tcp == nullptr) return false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    if (is_listening_at(std::atoi(entry.path().filename().c_str()), tcp->getPort())) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<StoreLink> StoreLink::to(const c10::intrusive_ptr<c10d::Store>& base) {
  Links& all = links();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_store, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = all.by_store.find(base.get()); found != all.by_store.end()) {
    auto link = found->second.lock();
    if (link && !link->thread_.is_of_other_process()) return link;
  }
  auto link = std::make_shared<StoreLink>(base);
  all.by_store[base.get()] = link;
  return link;
}

StoreLink::StoreLink(const c10::intrusive_ptr<c10d::Store>& base) : base_(base), thread_(base) {}

void StoreLink::run_or_leave(std::function<void(c10d::Store&)> task) {
  thread_.run_or_leave([task = std::move(task)](c10d::Store& store) -> std::any {
    task(store);
    return {};
  });
}

void StoreLink::set(const std::string& key, const std::string& value) {
  run_or_leave([key, bytes = std::vector<std::uint8_t>(value.begin(), value.end())](
                   c10d::Store& store) { store.set(key, bytes); });
}

void StoreLink::remove(const std::string& key) {
  run_or_leave([key](c10d::Store& store) { store.deleteKey(key); });
}

std::optional<std::string> StoreLink::try_get(const std::string& key, Deadline deadline) {
  auto answer = thread_.run(
      [key](c10d::Store& store) -> std::any { return read_if_there(store, key); }, deadline);
  return std::any_cast<std::optional<std::string>>(std::move(answer));
}

c10::intrusive_ptr<c10d::Store> StoreLink::clone(Deadline deadline) {
  return std::any_cast<c10::intrusive_ptr<c10d::Store>>(
      thread_.run([](c10d::Store& store) -> std::any { return store.clone(); }, deadline));
}

void StoreLink::enter() {
  const std::lock_guard lock(groups_mutex_);
  ++groups_;
}

void StoreLink::leave(const std::string& left, bool has_failed) noexcept {
  try {
    std::vector<std::string> keys;
    {
      const std::lock_guard lock(groups_mutex_);
      --groups_;
      has_failed_group_ |= has_failed;
      if (!left.empty()) left_keys_.push_back(left);
      if (left_keys_.size() > kMostLeftKeys) left_keys_.erase(left_keys_.begin());
      if (groups_ > 0) return;
      keys.swap(left_keys_);
      if (std::exchange(has_failed_group_, false)) return;
    }
    if (!is_served_here(*base_)) return;
    const auto limit = Deadline::after(kStay);
    for (const std::string& key : keys) {
      while (!limit.has_passed() && try_get(key, limit)) std::this_thread::sleep_for(kStayPause);
    }
  } catch (const std::exception& error) {
    log_line(LogLevel::kInfo,
             "did not wait for who leaves the store: " + std::string(error.what()));
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
  if (!store.check({key})) return std::nullopt;
  // Whoever wrote it may remove it now, and then get() would wait until somebody writes it again.
  std::optional<c10d::StoreTimeoutGuard> limit;
  if (dynamic_cast<c10d::HashStore*>(&store) == nullptr) {  // that is no clone, but the caller's
    limit.emplace(store, kGetLimit);
  }
  try {
    const auto bytes = store.get(key);
    return std::string(bytes.begin(), bytes.end());
  } catch (const c10::DistStoreError&) {
    return std::nullopt;
  }
}

}  // namespace chainmail::internal
