// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's end of one agent: the process that was started for it (the agent itself or a
// remote shell, here or on a host that carries it), the channel, and the time limits on both.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/channel/frame_channel.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/tree/agent_process.h"

namespace chainmail::launch {

struct AgentLimits {
  std::chrono::milliseconds lease;  ///< of silence
  /// From the start of the remote shell to the agent's hello; 0: any time.
  std::chrono::milliseconds start;
  /// Of that, what an engine may take to start a container.
  std::chrono::milliseconds container = std::chrono::minutes(10);
};

class AgentLink {
 public:
  struct Callbacks {
    std::function<void(const AgentHello&)> on_hello;
    std::function<void(const internal::Frame&)> on_frame;
    /// Once: the agent is out of reach. Not after leave().
    std::function<void(const std::string& reason)> on_lost;
    /// A line that the agent or the remote shell printed to stderr after the hello.
    std::function<void(const std::string& line)> on_error_line;
    /// Why a launcher that is installed there was not run.
    std::function<void(const std::string& note)> on_note;
  };

  /// `process` runs the command of `start`.
  AgentLink(asio::io_context& io, AgentStart start, std::unique_ptr<AgentProcess> process,
            Callbacks callbacks, AgentLimits limits);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  void send(AgentMessage type, std::string body);
  void send_urgent(AgentMessage type, std::string body);
  /// A text for all agents; those that carry this one get it before.
  void send_shared(std::uint32_t number, const SharedFrames& frames);
  void send_order(const StartOrder& order);
  /// Heartbeat, lease and start limit; call once per heartbeat. `was_late`: this process was held
  /// up, so silence proves nothing.
  void tick(bool was_late);
  /// Tells the agent to end; nothing is reported afterwards.
  void leave();
  /// Looks whether the process has ended; true when it is gone.
  bool reap();
  /// The host through which this one was reached is gone, `reason` says how.
  void lose_parent(const std::string& reason);
  void kill_process() const;

  const std::optional<AgentHello>& hello() const noexcept { return hello_; }
  bool is_lost() const noexcept { return is_lost_; }
  /// After leave(): why the agent has not left as it was told to; empty when it has.
  [[nodiscard]] std::string why_not_left() const;
  bool is_reaped() const noexcept { return is_reaped_; }
  bool is_leaving() const noexcept { return is_leaving_; }
  std::chrono::milliseconds silence() const { return channel_->silence(); }
  const AgentStart& start() const noexcept { return start_; }
  /// What it printed to stderr, and before the hello also to stdout: some say there why they end.
  std::string error_output() const { return error_output_ + noise_; }
  /// A shell on the host has come to start the agent's container.
  [[nodiscard]] bool has_reached_engine() const noexcept { return shell_script_sent_; }
  /// -1 while running or after a signal.
  int exit_code() const noexcept { return exit_code_; }
  const std::string& exit_text() const noexcept { return exit_text_; }

 private:
  void answer_script(std::string_view noise);
  void receive(const internal::Frame& frame);
  void receive_error(std::span<const std::byte> bytes);
  void pass_line(const std::string& line);
  [[nodiscard]] bool is_held_up(std::chrono::milliseconds silence) const;
  void lose(const std::string& reason);
  void wait_for_exit_then_lose(int looks = 20);

  asio::io_context& io_;
  AgentStart start_;
  Callbacks callbacks_;
  const AgentLimits limits_;
  std::unique_ptr<AgentProcess> process_;
  std::unique_ptr<FrameChannel> channel_;
  std::optional<AgentHello> hello_;
  std::chrono::steady_clock::time_point started_;
  std::string error_output_;
  std::string error_line_;
  std::string noise_;
  std::string end_reason_;  // of the channel, when it did not simply close
  std::string exit_text_ = "still runs";
  int exit_code_ = -1;
  std::string silence_text_;  // of an agent that was told to leave, when its parent was lost
  bool shell_script_sent_ = false;
  bool image_sent_ = false;
  bool is_reaped_ = false;
  bool is_lost_ = false;
  bool is_leaving_ = false;
  // Timers that outlive the link look at this first.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace chainmail::launch
