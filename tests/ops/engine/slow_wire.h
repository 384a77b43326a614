// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A slow network between ranks that are threads of the test process: TCP connections lead through a
// thread that hands on so many bytes a second, in each direction, and none at all once told so.

#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/net/socket.h"
#include "base/unique_fd.h"
#include "ops/core/rendezvous.h"

namespace chainmail::test {

class SlowWire {
 public:
  explicit SlowWire(std::size_t bytes_per_second);
  ~SlowWire();
  SlowWire(const SlowWire&) = delete;
  SlowWire& operator=(const SlowWire&) = delete;

  /// From now on nothing gets through, and connections stay open.
  void hold() noexcept { left_ = 0; }
  /// hold(), when so many more bytes have gone through.
  void hold_after(std::size_t bytes) noexcept { left_ = bytes; }

  /// Where to connect to in place of `target`.
  [[nodiscard]] internal::SocketAddress in_front_of(const internal::SocketAddress& target);

  /// `inner` as the rank sees it whose connections lead through the wire: those to peers whose
  /// rendezvous key `is_slow` picks. Keys end with ".../<Comm>/tcp/<generation>/<rank in the
  /// Comm>".
  [[nodiscard]] std::shared_ptr<ops::Rendezvous> before(
      std::shared_ptr<ops::Rendezvous> inner, std::function<bool(const std::string& key)> is_slow =
                                                  [](const std::string&) { return true; });

 private:
  struct Direction {
    int from = -1;
    int to = -1;
    std::string waiting;
    double allowance = 0;
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
  void move(Link& link, Direction& direction, double bytes);

  const std::size_t rate_;
  std::atomic<std::size_t> left_{~std::size_t{0}};
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;  // of entrances_
  std::list<Entrance> entrances_;
  std::list<Link> links_;
  std::thread thread_;
};

}  // namespace chainmail::test
