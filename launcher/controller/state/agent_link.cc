// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/agent_link.h"

#include <algorithm>
#include <asio/steady_timer.hpp>
#include <cerrno>

#include "base/error.h"
#include "launcher/job/text.h"
#include "launcher/process/children.h"
#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kMaxErrorBytes = 16384;
constexpr std::size_t kMaxNoiseBytes = 2048;
constexpr std::size_t kOrderPieceBytes = 256 << 10;
// The channel closes a moment before the process is reaped; its exit says more than "closed".
constexpr std::chrono::milliseconds kExitGrace{100};

}  // namespace

AgentLink::AgentLink(asio::io_context& io, AgentStart start, std::unique_ptr<AgentProcess> process,
                     Callbacks callbacks, AgentLimits limits)
    : io_(io),
      start_(std::move(start)),
      callbacks_(std::move(callbacks)),
      limits_(limits),
      process_(std::move(process)),
      started_(std::chrono::steady_clock::now()) {
  FrameChannel::Callbacks on_channel;
  on_channel.on_frame = [this](const internal::Frame& frame) { receive(frame); };
  on_channel.on_end = [this](const std::string& reason) {
    if (reason != kClosed) {
      end_reason_ = reason;
    } else if (hello_ && channel_->silence() > 2 * kHeartbeatInterval) {
      end_reason_ = "silent for " + std::to_string(channel_->silence().count()) +
                    " ms before: stopped, or held up by a busy host?";
    }
    wait_for_exit_then_lose();
  };
  on_channel.on_noise = [this](std::string_view noise) { answer_script(noise); };
  channel_ = std::make_unique<FrameChannel>(
      [this](ByteStream::Callbacks on_stream) { return process_->connect(std::move(on_stream)); },
      start_.marker, std::move(on_channel));
  channel_->send_raw(start_.script);
  process_->read_errors([this](std::span<const std::byte> bytes) { receive_error(bytes); });
}

AgentLink::~AgentLink() {
  channel_->close();
  process_->stop_reading();
}

void AgentLink::send(AgentMessage type, std::string body) {
  // What is long waits until the agent has spoken: a remote shell that has not started its
  // command yet may never read it.
  if (hello_ && !is_lost_) channel_->send(type, std::move(body));
}

void AgentLink::send_urgent(AgentMessage type, std::string body) {
  if (hello_ && !is_lost_) channel_->send_urgent(type, std::move(body));
}

void AgentLink::send_shared(std::uint32_t number, const SharedFrames& frames) {
  if (hello_ && !is_lost_) process_->send_shared(number, frames);
}

void AgentLink::send_order(const StartOrder& order) {
  const std::string bytes = encode_fields(order);
  for (std::size_t at = 0; at < bytes.size(); at += kOrderPieceBytes) {
    send(AgentMessage::kStartPart, bytes.substr(at, kOrderPieceBytes));
  }
  send(AgentMessage::kStart, "");
}

void AgentLink::tick(bool was_late) {
  if (is_lost_ || is_leaving_) return;
  if (!hello_) {
    const std::chrono::milliseconds limit =
        shell_script_sent_ && !image_sent_ ? limits_.container : limits_.start;
    if (limit.count() == 0 || std::chrono::steady_clock::now() - started_ < limit) return;
    exit_text_ = "did not answer within " + seconds_text(limit);
    kill_process();
    return lose(exit_text_);
  }
  const std::chrono::milliseconds silence = channel_->silence();
  if (!was_late && silence > limits_.lease && !is_held_up(silence)) {
    kill_process();
    return lose("nothing heard for " + std::to_string(silence.count()) + " ms");
  }
  channel_->send_urgent(AgentMessage::kHeartbeat, "");
}

bool AgentLink::is_held_up(std::chrono::milliseconds silence) const {
  return start_.is_local() && silence < kLeasesOfOneMachine * limits_.lease &&
         is_at_work(static_cast<pid_t>(hello_->pid));
}

void AgentLink::leave() {
  send(AgentMessage::kLeave, "");
  is_leaving_ = true;
  // Without a hello there is nobody to tell; the end of its input ends a late agent.
  if (!hello_) channel_->close();
}

std::string AgentLink::why_not_left() const {
  if (!silence_text_.empty()) return silence_text_;
  if (!hello_ || !is_leaving_ || is_lost_) return "";
  if (is_reaped()) {
    return exit_code_ == 0
               ? ""
               : "its agent ended by itself; " + start_.command.front() + " " + exit_text_;
  }
  if (channel_->silence() < 2 * kHeartbeatInterval) return "";
  return "nothing heard for " + std::to_string(channel_->silence().count()) + " ms";
}

bool AgentLink::reap() {
  if (is_reaped_) return true;
  const auto exit = process_->reap();
  if (!exit) return false;
  is_reaped_ = true;
  exit_code_ = exit->code;
  exit_text_ = exit->text;
  // A wrapper around the remote shell can die and leave the pipes to a child that nobody controls.
  if (!is_lost_ && !is_leaving_) wait_for_exit_then_lose();
  return true;
}

void AgentLink::lose_parent(const std::string& reason) {
  if (is_reaped_) return;
  if (is_leaving_) silence_text_ = why_not_left();
  is_reaped_ = true;
  exit_code_ = -1;
  exit_text_ = reason;
  lose(reason);
}

void AgentLink::kill_process() const { process_->kill(); }

// The script runs where no launcher of this build is installed, and asks for one; on a host whose
// agent is to be in a container, another one before it asks for what the shell there is to read.
void AgentLink::answer_script(std::string_view noise) {
  noise_ = noise.substr(noise.size() - std::min(noise.size(), kMaxNoiseBytes));
  if (!shell_script_sent_ && !start_.shell_request.empty() &&
      noise.find(start_.shell_request) != std::string::npos) {
    shell_script_sent_ = true;
    started_ = std::chrono::steady_clock::now();
    channel_->send_raw(start_.shell_script);
  }
  if (image_sent_ || start_.request.empty() || noise.find(start_.request) == std::string::npos) {
    return;
  }
  image_sent_ = true;
  started_ = std::chrono::steady_clock::now();
  process_->send_image(start_);
}

void AgentLink::receive(const internal::Frame& frame) {
  if (hello_) return callbacks_.on_frame(frame);
  if (type_of(frame) == AgentMessage::kHeartbeat) return;
  if (type_of(frame) != AgentMessage::kAgentHello) {
    throw SystemError("agent protocol: the first message is not the agent's hello", EPROTO);
  }
  hello_ = decode_hello(frame.body);
  noise_.clear();
  constexpr std::chrono::milliseconds kMost{~std::uint32_t{0}};
  const auto lease = static_cast<std::uint32_t>(std::min(limits_.lease, kMost).count());
  // It counts its silence from its start, which may be some time ago.
  send(AgentMessage::kLease, internal::BodyWriter().u32(lease).take());
  callbacks_.on_hello(*hello_);
  // Of what came before only the notes count: start-up files print all sorts of things.
  for (std::size_t at = error_output_.find(kBootstrapNotes); at != std::string::npos;
       at = error_output_.find(kBootstrapNotes, at + 1)) {
    const std::size_t end = error_output_.find('\n', at);
    if (end == std::string::npos) break;
    pass_line(error_output_.substr(at, end - at));
  }
}

void AgentLink::receive_error(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  error_output_ += text;
  if (error_output_.size() > kMaxErrorBytes) {
    error_output_.erase(0, error_output_.size() - kMaxErrorBytes);
  }
  if (!hello_) return;
  error_line_ += text;
  for (std::size_t end = error_line_.find('\n'); end != std::string::npos;
       end = error_line_.find('\n')) {
    pass_line(error_line_.substr(0, end));
    error_line_.erase(0, end + 1);
  }
  if (error_line_.size() > kMaxErrorBytes) error_line_.clear();
}

void AgentLink::pass_line(const std::string& line) {
  constexpr std::string_view kNote = kBootstrapNotes;
  if (line.starts_with(kNote)) {
    if (callbacks_.on_note) callbacks_.on_note(line.substr(kNote.size()));
  } else if (!is_leaving_ || line.starts_with(kAgentSays)) {
    // Remote shells have much to say about connections that end.
    callbacks_.on_error_line(line);
  }
}

// The remote shell's end is a part of the reason; on a busy machine it takes its time.
void AgentLink::wait_for_exit_then_lose(int looks) {
  auto timer = std::make_shared<asio::steady_timer>(io_);
  timer->expires_after(kExitGrace);
  timer->async_wait(
      [this, timer, looks, alive = std::weak_ptr<bool>(alive_)](const asio::error_code& error) {
        if (error || alive.expired() || is_lost_) return;
        if (!reap() && looks > 1) return wait_for_exit_then_lose(looks - 1);
        const std::string why = end_reason_.empty() ? "" : " (" + end_reason_ + ")";
        lose("the connection to its agent closed" + why + "; " + start_.command.front() + " " +
             exit_text_);
      });
}

void AgentLink::lose(const std::string& reason) {
  if (is_lost_) return;
  is_lost_ = true;
  channel_->close();
  process_->drain_errors();
  // The process is left alone: a supervisor whose agent was killed still has orphans to end.
  if (!is_leaving_) callbacks_.on_lost(reason);
}

}  // namespace chainmail::launch
