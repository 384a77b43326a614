// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/engine/slow_wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

namespace chainmail::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{2};
// So that what is on the way is little beside what is sent.
constexpr int kSocketBuffer = 16 << 10;
constexpr std::size_t kMostWaiting = 16 << 10;

void limit_buffers(int fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof kSocketBuffer);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
}

class SlowRendezvous final : public ops::Rendezvous {
 public:
  SlowRendezvous(SlowWire& wire, std::shared_ptr<ops::Rendezvous> inner,
                 std::function<bool(const std::string&)> is_slow)
      : wire_(wire), inner_(std::move(inner)), is_slow_(std::move(is_slow)) {}

  void set(const std::string& key, const std::string& value) override { inner_->set(key, value); }
  std::string get(const std::string& key, internal::Deadline deadline) override {
    return replace(key, inner_->get(key, deadline));
  }
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, internal::Deadline deadline) override {
    auto value = inner_->try_get(key, deadline);
    return value ? std::optional(replace(key, *value)) : std::nullopt;
  }

 private:
  std::string replace(const std::string& key, const std::string& value) {
    if (key.find("/tcp/") == std::string::npos || !is_slow_(key)) return value;
    const auto address = internal::parse_address(value);
    if (!address) return value;
    const std::lock_guard lock(mutex_);
    std::string& place = replaced_[key + value];
    if (place.empty()) place = wire_.in_front_of(*address).to_string();
    return place;
  }

  SlowWire& wire_;
  const std::shared_ptr<ops::Rendezvous> inner_;
  const std::function<bool(const std::string&)> is_slow_;
  std::mutex mutex_;
  std::map<std::string, std::string> replaced_;
};

}  // namespace

SlowWire::SlowWire(std::size_t bytes_per_second)
    : rate_(bytes_per_second), thread_([this] { run(); }) {}

SlowWire::~SlowWire() {
  is_stopping_ = true;
  thread_.join();
}

internal::SocketAddress SlowWire::in_front_of(const internal::SocketAddress& target) {
  Entrance entrance{internal::listen_on(internal::loopback_address(), 8), target};
  limit_buffers(entrance.listener.get());
  const auto address = internal::local_address(entrance.listener.get());
  const std::lock_guard lock(mutex_);
  entrances_.push_back(std::move(entrance));
  return address;
}

std::shared_ptr<ops::Rendezvous> SlowWire::before(std::shared_ptr<ops::Rendezvous> inner,
                                                  std::function<bool(const std::string&)> is_slow) {
  return std::make_shared<SlowRendezvous>(*this, std::move(inner), std::move(is_slow));
}

void SlowWire::accept_new() {
  const std::lock_guard lock(mutex_);
  for (const Entrance& entrance : entrances_) {
    internal::UniqueFd near(
        ::accept4(entrance.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!near.is_open()) continue;
    Link& link = links_.emplace_back();
    link.near = std::move(near);
    link.far = internal::start_connect(entrance.target);
    limit_buffers(link.near.get());
    limit_buffers(link.far.get());
    link.out = {link.near.get(), link.far.get(), {}, 0};
    link.in = {link.far.get(), link.near.get(), {}, 0};
  }
}

void SlowWire::move(Link& link, Direction& direction, double bytes) {
  direction.allowance = std::min(direction.allowance + bytes, 2.0 * kMostWaiting);
  std::array<char, kMostWaiting> buffer{};
  const std::size_t most = std::min({kMostWaiting - direction.waiting.size(),
                                     static_cast<std::size_t>(direction.allowance), left_.load()});
  if (most > 0) {
    const ssize_t got = ::recv(direction.from, buffer.data(), most, 0);
    link.is_over = link.is_over || got == 0 ||
                   (got < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN);
    if (got > 0) {
      direction.waiting.append(buffer.data(), static_cast<std::size_t>(got));
      direction.allowance -= static_cast<double>(got);
      if (left_ != ~std::size_t{0}) left_ -= std::min(left_.load(), static_cast<std::size_t>(got));
    }
  }
  if (direction.waiting.empty()) return;
  const ssize_t sent =
      ::send(direction.to, direction.waiting.data(), direction.waiting.size(), MSG_NOSIGNAL);
  if (sent > 0) direction.waiting.erase(0, static_cast<std::size_t>(sent));
  link.is_over = link.is_over || (sent < 0 && errno != EAGAIN && errno != EINTR &&
                                  errno != ENOTCONN && errno != EINPROGRESS);
}

void SlowWire::run() {
  auto last = Clock::now();
  while (!is_stopping_) {
    std::this_thread::sleep_for(kTick);
    accept_new();
    const auto now = Clock::now();
    const double bytes =
        std::chrono::duration<double>(now - last).count() * static_cast<double>(rate_);
    last = now;
    for (Link& link : links_) {
      move(link, link.out, bytes);
      move(link, link.in, bytes);
    }
    // What was read before an end is to get through: an abort may be the last that came.
    links_.remove_if([](const Link& link) {
      return link.is_over && link.out.waiting.empty() && link.in.waiting.empty();
    });
  }
}

}  // namespace chainmail::test
