// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The clock of a WorldMachine.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/membership/world/world_events.h"

namespace chainmail::launch {

class WorldTimers {
 public:
  WorldTimers(asio::io_context& io,
              std::function<void(const membership::WorldTimerElapsed& event)> on_elapsed);

  /// Replaces a running one of the same kind and subject.
  void start(const membership::StartWorldTimer& timer);
  /// No further one elapses.
  void stop() { running_.clear(); }

 private:
  using Name = std::pair<membership::WorldTimer, std::uint32_t>;
  using Time = std::chrono::steady_clock::time_point;
  struct Running {
    asio::steady_timer timer;
    std::uint64_t serial = 0;
  };

  void wait(const Name& name, Time until);

  asio::io_context& io_;
  std::function<void(const membership::WorldTimerElapsed& event)> on_elapsed_;
  std::map<Name, Running> running_;
  std::uint64_t next_serial_ = 0;
};

}  // namespace chainmail::launch
