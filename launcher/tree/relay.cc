// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/relay.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/tree/tunnel_wire.h"

namespace chainmail::launch {

Relay::~Relay() { close(internal::Deadline::after(std::chrono::milliseconds(0))); }

void Relay::on_frame(const internal::Frame& frame) {
  if (type_of(frame) == AgentMessage::kTunnelOpen) return open(frame);
  if (type_of(frame) == AgentMessage::kTunnelShared) return share(frame);
  TunnelText text = decode_tunnel_text(frame.body);
  const auto found = tunnels_.find(text.tunnel);
  if (found == tunnels_.end()) return;
  Tunnel& tunnel = found->second;
  if (type_of(frame) == AgentMessage::kTunnelKill) {
    kill(-tunnel.pid, SIGKILL);
  } else if (type_of(frame) == AgentMessage::kTunnelImage) {
    send_image(text.tunnel, tunnel, text.text);
  } else if (type_of(frame) == AgentMessage::kTunnelUrgent) {
    tunnel.stream->write_urgent(std::move(text.text));
  } else if (text.text.empty()) {
    tunnel.stream->close();
  } else {
    tunnel.stream->write(std::move(text.text));
  }
  check_queue(tunnel);
}

void Relay::share(const internal::Frame& frame) {
  internal::BodyReader body(frame.body);
  const auto found = tunnels_.find(body.u32());
  const SharedFrames& frames = shared_.frames(body.u32());
  if (found == tunnels_.end()) return;
  for (const auto& part : frames) found->second.stream->write_shared(part);
}

void Relay::open(const internal::Frame& frame) {
  const TunnelOrder order = decode_tunnel_order(frame.body);
  if (tunnels_.contains(order.tunnel)) {
    throw SystemError("agent protocol: tunnel " + std::to_string(order.tunnel) + " is open already",
                      EPROTO);
  }
  try {
    const std::vector<std::string> environment = starter_environment();
    Tunnel tunnel = connect(start_child(order.command, &descriptors_, &environment), order.tunnel);
    tunnels_[order.tunnel] = tunnel;
    for (const auto& stream : {tunnel.stream, tunnel.errors}) {
      stream->set_reading(reading_);
      stream->start();
    }
  } catch (const SystemError& error) {
    send_(AgentMessage::kTunnelEnded,
          encode_fields(TunnelEnd{order.tunnel, TunnelEnd::How::kNotStarted, 0, error.what()}));
  }
}

// Throws SystemError; nobody hears of the command then, and the agent reaps it.
Relay::Tunnel Relay::connect(ChildProcess child, std::uint32_t number) {
  try {
    return {child.pid,
            ByteStream::make(io_, std::move(child.output), std::move(child.input),
                             callbacks_of(number, 1)),
            ByteStream::make(io_, std::move(child.error), {}, callbacks_of(number, 2))};
  } catch (const SystemError&) {
    kill(-child.pid, SIGKILL);
    throw;
  }
}

ByteStream::Callbacks Relay::callbacks_of(std::uint32_t number, std::uint8_t stream) {
  const auto send = [this, number, stream](std::string bytes) {
    send_(AgentMessage::kTunnelOutput,
          encode_fields(TunnelOutput{number, static_cast<TunnelStream>(stream), std::move(bytes)}));
  };
  return {.on_bytes =
              [send](std::span<const std::byte> bytes) {
                send(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
              },
          .on_end = [send](const std::string&) { send(""); }};
}

void Relay::check_queue(const Tunnel& tunnel) {
  if (tunnel.stream->queued_bytes() > kMostQueuedBytes) kill(-tunnel.pid, SIGKILL);
}

// The launcher's program is this agent's own, so it need not travel again for every host behind.
void Relay::send_image(std::uint32_t number, Tunnel& tunnel, const std::string& checksum) {
  try {
    if (!image_) image_ = read_agent_image("/proc/self/exe");
  } catch (const SystemError&) {
    // A launcher for another machine may have been started from a path that is gone.
  }
  if (image_ && image_->checksum == checksum) return tunnel.stream->write_shared(image_->bytes);
  send_(AgentMessage::kTunnelNoImage, encode_fields(TunnelText{number, ""}));
}

// Closed input is what tells an agent behind to end in order, and to take its folders along.
void Relay::close(internal::Deadline deadline) {
  for (auto& [number, tunnel] : tunnels_) {
    tunnel.stream->close();
    tunnel.errors->close();
  }
  while (!tunnels_.empty() && !deadline.has_passed()) {
    std::erase_if(tunnels_, [](const auto& entry) {
      return waitpid(entry.second.pid, nullptr, WNOHANG) == entry.second.pid;
    });
    if (!tunnels_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Relay::reap() {
  std::vector<std::pair<std::uint32_t, int>> ended;
  for (const auto& [number, tunnel] : tunnels_) {
    int status = 0;
    if (waitpid(tunnel.pid, &status, WNOHANG) == tunnel.pid) ended.emplace_back(number, status);
  }
  for (const auto& [number, status] : ended) end(number, status);
}

void Relay::end(std::uint32_t number, int wait_status) {
  const Tunnel tunnel = std::move(tunnels_.at(number));
  tunnels_.erase(number);
  for (const auto& stream : {tunnel.stream, tunnel.errors}) {
    stream->drain();
    stream->close();
  }
  const bool has_exited = WIFEXITED(wait_status);
  const int value = has_exited ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status);
  send_(AgentMessage::kTunnelEnded,
        encode_fields(TunnelEnd{number,
                                has_exited ? TunnelEnd::How::kExited : TunnelEnd::How::kKilled,
                                static_cast<std::uint32_t>(value), ""}));
}

bool Relay::owns(pid_t pid) const {
  return std::any_of(tunnels_.begin(), tunnels_.end(),
                     [pid](const auto& entry) { return entry.second.pid == pid; });
}

void Relay::set_reading(bool reading) {
  if (std::exchange(reading_, reading) == reading) return;
  for (auto& [number, tunnel] : tunnels_) {
    tunnel.stream->set_reading(reading);
    tunnel.errors->set_reading(reading);
  }
}

}  // namespace chainmail::launch
