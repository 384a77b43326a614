// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --host-discovery of an elastic job: a program that is asked every few seconds which hosts there
// are, as Horovod's is. One that fails or does not end changes nothing.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/command_output.h"

namespace chainmail::launch {

class HostDiscovery {
 public:
  using Clock = std::chrono::steady_clock;
  struct Callbacks {
    /// It prints other lines than it did the last time.
    std::function<void(const std::string& text)> on_text;
    /// It could not be asked; once, until it can.
    std::function<void(const std::string& why)> on_failure;
  };

  /// `command`: program and arguments, no shell; for each run it has 30 s. `text`: what it has
  /// printed before.
  HostDiscovery(asio::io_context& io, std::vector<std::string> command,
                std::chrono::milliseconds interval, std::string text, Callbacks callbacks);

  /// From now on, first after one interval.
  void start();
  /// No further callback; what runs is killed.
  void stop();

 private:
  void wait(std::chrono::milliseconds time);
  void look();
  void take(const CommandOutput& output);
  void fail(const std::string& why);

  asio::steady_timer timer_;
  const std::vector<std::string> command_;
  const std::chrono::milliseconds interval_;
  const Callbacks callbacks_;
  std::unique_ptr<RunningCommand> running_;
  Clock::time_point give_up_at_;
  std::string text_;
  bool has_failed_ = false;
  bool is_over_ = false;
};

}  // namespace chainmail::launch
