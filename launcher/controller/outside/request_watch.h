// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Asks once a second, in a thread of its own, whether somebody wants the job to end: where a file
// says so, its file system may not answer for minutes.
//
// Thread-safe.

#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "launcher/job/stop_request.h"

namespace chainmail::launch {

class RequestWatch {
 public:
  /// `ask` is called at once, and again when `interval` has passed since it returned. It must own
  /// what it uses, since it may be running still when this object is gone. What it throws counts as
  /// kNone. Throws std::system_error where no thread can be had.
  explicit RequestWatch(std::function<StopRequest()> ask,
                        std::chrono::milliseconds interval = std::chrono::seconds(1));
  /// Does not wait for `ask`.
  ~RequestWatch();
  RequestWatch(const RequestWatch&) = delete;
  RequestWatch& operator=(const RequestWatch&) = delete;

  /// The most that was asked so far; never blocks.
  [[nodiscard]] StopRequest latest() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chainmail::launch
