// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the program of an elastic job knows of worlds. One that says nothing may be slow to
// start, so what would end it, or start ranks that it has not asked for, waits for a while: until
// it says something, or until it counts as a program that never will.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {

class Silence {
 public:
  /// It has lasted, and something has happened: a change of hosts, or a failure.
  using OnLasting = std::function<void(const std::string& cause, std::optional<Failure> failure)>;

  Silence(asio::io_context& io, OnLasting on_lasting);

  /// The first ranks have been started; it is waited for so long. Later calls do nothing.
  void begin(std::chrono::milliseconds limit);
  /// Some rank has said something, or the job is ending: nothing is told any more.
  void end();

  /// Nobody is left who could say something.
  void cut_short();

  /// Ranks run, and none has said anything.
  [[nodiscard]] bool is_there() const noexcept {
    return state_ == State::kWaiting || state_ == State::kLasting;
  }
  [[nodiscard]] bool has_failure() const noexcept { return failure_.has_value(); }

  /// What has happened in it, of which the first counts.
  void change(const std::string& what);
  void fail(Failure failure);

 private:
  enum class State { kUnknown, kWaiting, kLasting, kOver };

  void tell();

  asio::steady_timer timer_;
  OnLasting on_lasting_;
  State state_ = State::kUnknown;
  std::string what_;
  std::optional<Failure> failure_;
};

}  // namespace chainmail::launch
