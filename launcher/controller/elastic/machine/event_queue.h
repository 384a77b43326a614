// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Events of a WorldMachine, handled one after the other and never within somebody's callback.
//
// One thread, the io_context's, which the queue outlives.

#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <deque>
#include <functional>
#include <utility>

#include "base/membership/world/world_events.h"

namespace chainmail::launch {

class EventQueue {
 public:
  using Handle = std::function<void(const membership::WorldEvent& event)>;

  EventQueue(asio::io_context& io, Handle handle) : io_(io), handle_(std::move(handle)) {}

  void give(membership::WorldEvent event) {
    if (is_closed_) return;
    events_.push_back(std::move(event));
    if (events_.size() > 1) return;
    asio::post(io_, [this] { handle_all(); });
  }

  /// From here on nothing is an event any more; those that wait are dropped.
  void close() { is_closed_ = true; }
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }

 private:
  void handle_all() {
    while (!events_.empty() && !is_closed_) {
      const membership::WorldEvent event = std::move(events_.front());
      handle_(event);
      // Only now: what comes in between waits behind it, and nobody else looks at the queue.
      events_.pop_front();
    }
  }

  asio::io_context& io_;
  Handle handle_;
  std::deque<membership::WorldEvent> events_;
  bool is_closed_ = false;
};

}  // namespace chainmail::launch
