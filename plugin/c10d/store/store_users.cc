// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_users.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

namespace chainmail::internal {
namespace {

// Groups that others stay in long after this rank has left.
constexpr std::size_t kMostKeys = 64;

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

/// Whether this process serves the store at `port`; torch has no call for that.
bool is_served_here(std::uint16_t port) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    if (is_listening_at(std::atoi(entry.path().filename().c_str()), port)) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<StoreUsers> StoreUsers::of(const c10d::Store& store) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::uint16_t>, std::weak_ptr<StoreUsers>> all;
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(&store);
  if (tcp == nullptr) return nullptr;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  auto& known = all[{tcp->getHost(), tcp->getPort()}];
  auto groups = known.lock();
  if (groups == nullptr || groups->process_ != ::getpid()) {  // not those of the parent process
    groups = std::make_shared<StoreUsers>(*tcp);
    known = groups;
  }
  return groups;
}

StoreUsers::StoreUsers(const c10d::TCPStore& store)
    : port_(store.getPort()), process_(::getpid()) {}

void StoreUsers::enter() {
  const std::lock_guard lock(mutex_);
  ++groups_;
}

std::vector<std::string> StoreUsers::leave(const std::string& key, bool has_failed) {
  std::vector<std::string> keys;
  {
    const std::lock_guard lock(mutex_);
    has_failed_ |= has_failed;
    if (!key.empty()) keys_.push_back(key);
    if (keys_.size() > kMostKeys) keys_.erase(keys_.begin());
    if (--groups_ > 0) return {};
    keys.swap(keys_);
    if (std::exchange(has_failed_, false)) return {};
  }
  if (keys.empty() || !is_served_here(port_)) return {};
  return keys;
}

}  // namespace chainmail::internal
