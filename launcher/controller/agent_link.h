// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's end of one agent: the process that was started for it (the agent itself or a
// remote shell), the channel, and the time limits on both.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/channel/frame_channel.h"
#include "launcher/remote/agent_starter.h"

namespace chainmail::launch {

class AgentLink {
 public:
  struct Callbacks {
    std::function<void(const AgentHello&)> on_hello;
    std::function<void(const internal::Frame&)> on_frame;
    /// Once: the agent is out of reach. Not after leave().
    std::function<void(const std::string& reason)> on_lost;
    /// A line that the agent or the remote shell printed to stderr after the hello.
    std::function<void(const std::string& line)> on_error_line;
  };

  /// Throws SystemError when the command cannot be run.
  AgentLink(asio::io_context& io, AgentStart start, Callbacks callbacks);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  void send(AgentMessage type, std::string body);
  void send_order(const StartOrder& order);
  /// Heartbeat, lease and start limit; call once per heartbeat. `was_late`: this process was held
  /// up, so silence proves nothing.
  void tick(bool was_late);
  /// Tells the agent to end; nothing is reported afterwards.
  void leave();
  /// Looks whether the process has ended; true when it is gone.
  bool reap();
  void kill_process() const;

  const std::optional<AgentHello>& hello() const noexcept { return hello_; }
  bool is_lost() const noexcept { return is_lost_; }
  /// After leave(): why the agent has not left as it was told to; empty when it has.
  [[nodiscard]] std::string why_not_left() const;
  bool is_reaped() const noexcept { return pid_ < 0; }
  pid_t pid() const noexcept { return pid_; }
  const AgentStart& start() const noexcept { return start_; }
  /// What it printed to stderr, and before the hello also to stdout: some say there why they end.
  std::string error_output() const { return error_output_ + noise_; }
  /// -1 while running or after a signal.
  int exit_code() const noexcept { return exit_code_; }
  const std::string& exit_text() const noexcept { return exit_text_; }

 private:
  void answer_script(std::string_view noise);
  void receive(const internal::Frame& frame);
  void receive_error(std::span<const std::byte> bytes);
  void lose(const std::string& reason);
  void wait_for_exit_then_lose();

  asio::io_context& io_;
  AgentStart start_;
  Callbacks callbacks_;
  pid_t pid_ = -1;
  std::unique_ptr<FrameChannel> channel_;
  std::shared_ptr<ByteStream> error_stream_;
  std::optional<AgentHello> hello_;
  std::chrono::steady_clock::time_point started_;
  std::string error_output_;
  std::string error_line_;
  std::string noise_;
  std::string exit_text_ = "still runs";
  int exit_code_ = -1;
  bool image_sent_ = false;
  bool is_lost_ = false;
  bool is_leaving_ = false;
  // Timers that outlive the link look at this first.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace chainmail::launch
