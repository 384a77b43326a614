// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's ends of all tunnels: commands that agents run for it and whose streams they carry,
// so that an agent behind another one is reached by the same code as one that was started here.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/channel/wire.h"
#include "launcher/tree/agent_process.h"

namespace chainmail::launch {

class TunnelProcess;

class Tunnels {
 public:
  /// Sends to the agent of a node.
  using Send = std::function<void(std::uint32_t node, AgentMessage type, std::string body)>;

  /// `send_urgent` goes ahead of what waits for that node.
  Tunnels(Send send, Send send_urgent)
      : send_(std::move(send)), send_urgent_(std::move(send_urgent)) {}
  Tunnels(const Tunnels&) = delete;
  Tunnels& operator=(const Tunnels&) = delete;

  /// Has the agent of `parent` run the command of `start`. What cannot be run ends like a command
  /// that fails. The result must not outlive this object.
  [[nodiscard]] std::unique_ptr<AgentProcess> open(std::uint32_t parent, const AgentStart& start);
  /// A kTunnel message of the agent of `node`; late words about a tunnel that is gone are dropped.
  /// Throws SystemError for what makes no sense and for tunnels of another node. True when a
  /// command has ended: reap() of its process says how.
  bool on_frame(std::uint32_t node, const internal::Frame& frame);

 private:
  friend class TunnelProcess;
  TunnelProcess* find(std::uint32_t tunnel, std::uint32_t node);

  Send send_;
  Send send_urgent_;
  std::map<std::uint32_t, TunnelProcess*> open_;
  std::uint32_t next_ = 0;
};

}  // namespace chainmail::launch
