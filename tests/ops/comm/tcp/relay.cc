// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/comm/tcp/relay.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace chainmail::ops::testing {

using internal::UniqueFd;

Relay::Relay(Change change) : change_(std::move(change)), thread_([this] { run(); }) {}

Relay::~Relay() { stop(); }

void Relay::stop() {
  is_stopping_ = true;
  if (thread_.joinable()) thread_.join();
  links_.clear();
}

std::string Relay::in_front_of(const std::string& target) {
  const std::lock_guard lock(mutex_);
  Entrance& entrance =
      entrances_.emplace_back(Entrance{internal::listen_on(internal::loopback_address(), 64),
                                       internal::parse_address(target).value()});
  return internal::local_address(entrance.listener.get()).to_string();
}

void Relay::accept_new() {
  const std::lock_guard lock(mutex_);
  for (const Entrance& entrance : entrances_) {
    UniqueFd near(
        ::accept4(entrance.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!near.is_open()) continue;
    internal::set_peer_options(near.get());
    Link& link = links_.emplace_back();
    link.near = std::move(near);
    link.far = internal::start_connect(entrance.target);
    internal::set_peer_options(link.far.get());
    link.out = {link.near.get(), link.far.get(), Side::kDialer};
    link.in = {link.far.get(), link.near.get(), Side::kAcceptor};
  }
}

// True when something has moved.
bool Relay::move(Link& link, Direction& direction) {
  if (direction.waiting.empty()) {
    char buffer[1 << 16];
    const ssize_t got = ::recv(direction.from, buffer, sizeof buffer, 0);
    if (got == 0) link.is_over = true;
    if (got < 0 && errno != EAGAIN && errno != ENOTCONN) link.is_over = true;
    if (got <= 0) return false;
    const auto bytes = static_cast<std::size_t>(got);
    direction.waiting.assign(buffer, bytes);
    seen_[direction.side == Side::kDialer ? 0 : 1] += direction.waiting;
    const std::size_t offset = std::exchange(direction.offset, direction.offset + bytes);
    if (change_ && !change_(direction.side, offset, direction.waiting)) link.is_over = true;
  }
  const ssize_t sent =
      ::send(direction.to, direction.waiting.data(), direction.waiting.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != ENOTCONN) link.is_over = true;
  if (sent <= 0) return false;
  direction.waiting.erase(0, static_cast<std::size_t>(sent));
  return true;
}

void Relay::run() {
  while (!is_stopping_) {
    accept_new();
    bool has_moved = false;
    for (Link& link : links_) {
      has_moved |= move(link, link.out);
      has_moved |= move(link, link.in);
    }
    links_.remove_if([](const Link& link) { return link.is_over; });
    if (!has_moved) std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

}  // namespace chainmail::ops::testing
