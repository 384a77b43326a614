// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/outside/request_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "launcher/process/signals.h"

namespace chainmail::launch {

// Shared with the thread, which may sit in a call that never returns; the launcher ends without it
// then.
struct RequestWatch::State {
  std::function<StopRequest()> ask;
  std::chrono::milliseconds interval;
  std::atomic<StopRequest> latest{StopRequest::kNone};
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;

  void run() {
    while (true) {
      look();
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, interval, [this] { return is_over; })) return;
    }
  }

  void look() noexcept {
    try {
      latest = std::max(latest.load(), ask());
    } catch (const std::exception&) {
      // It is asked again.
    }
  }
};

RequestWatch::RequestWatch(std::function<StopRequest()> ask, std::chrono::milliseconds interval)
    : state_(std::make_shared<State>()) {
  state_->ask = std::move(ask);
  state_->interval = interval;
  // Signals are for the main thread.
  const SignalsBlocked blocked;
  std::thread([state = state_] { state->run(); }).detach();
}

RequestWatch::~RequestWatch() {
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
}

StopRequest RequestWatch::latest() const noexcept { return state_->latest.load(); }

}  // namespace chainmail::launch
