// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/machine/world_timers.h"

#include "launcher/controller/state/late_timer.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Where the launcher was held up itself.
constexpr milliseconds kToReadOn{200};

}  // namespace

WorldTimers::WorldTimers(asio::io_context& io,
                         std::function<void(const membership::WorldTimerElapsed& event)> on_elapsed)
    : io_(io), on_elapsed_(std::move(on_elapsed)) {}

void WorldTimers::start(const membership::StartWorldTimer& timer) {
  wait({timer.timer, timer.subject}, steady_clock::now() + timer.duration);
}

void WorldTimers::wait(const Name& name, Time until) {
  Running& running = running_.try_emplace(name, Running{asio::steady_timer(io_)}).first->second;
  const std::uint64_t serial = running.serial = ++next_serial_;
  running.timer.expires_at(until);
  running.timer.async_wait([this, name, until, serial](const asio::error_code& error) {
    const auto found = running_.find(name);
    // One that has been replaced may have elapsed already, and wait for its turn here.
    if (error || found == running_.end() || found->second.serial != serial) return;
    if (is_late(until)) return wait(name, steady_clock::now() + kToReadOn);
    running_.erase(found);
    on_elapsed_({name.first, name.second});
  });
}

}  // namespace chainmail::launch
