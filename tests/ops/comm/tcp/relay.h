// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Somebody between two ranks on TCP: connections lead through a thread that records what passes and
// may change it.

#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace chainmail::ops::testing {

class Relay {
 public:
  enum class Side { kDialer, kAcceptor };  ///< who sends
  /// Changes `bytes`, which follow the first `offset` bytes of that side; false cuts the
  /// connection.
  using Change = std::function<bool(Side from, std::size_t offset, std::string& bytes)>;

  explicit Relay(Change change = {});
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Where to connect to in place of `target`.
  [[nodiscard]] std::string in_front_of(const std::string& target);
  /// What each side has sent, before it was changed, over all connections; after stop().
  [[nodiscard]] const std::string& seen(Side from) const {
    return seen_[from == Side::kDialer ? 0 : 1];
  }
  void stop();

 private:
  struct Direction {
    int from = -1;
    int to = -1;
    Side side = Side::kDialer;
    std::size_t offset = 0;
    std::string waiting{};
  };
  struct Entrance {
    internal::UniqueFd listener;
    internal::SocketAddress target;
  };
  struct Link {
    internal::UniqueFd near;
    internal::UniqueFd far;
    Direction out;
    Direction in;
    bool is_over = false;
  };

  void run();
  void accept_new();
  bool move(Link& link, Direction& direction);

  const Change change_;
  std::string seen_[2];
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;  ///< of entrances_
  std::list<Entrance> entrances_;
  std::list<Link> links_;
  std::thread thread_;
};

}  // namespace chainmail::ops::testing
