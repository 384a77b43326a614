// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An agent's ends of the tunnels through it: commands that start further agents, run for the
// launcher, whose streams travel over the agent's own channel. It knows nothing of what they say.
//
// One thread, the main one (launcher/process/fork_exec.h).

#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "launcher/channel/byte_stream.h"
#include "launcher/channel/wire.h"
#include "launcher/process/child_process.h"
#include "launcher/remote/agent_image.h"
#include "launcher/tree/shared_texts.h"

namespace chainmail::launch {

class Relay {
 public:
  using Send = std::function<void(AgentMessage type, std::string body)>;

  /// What may wait for one command that does not read; more ends it. Silence ends it long before.
  static constexpr std::size_t kMostQueuedBytes = std::size_t{64} << 20;

  /// `shared`: what this agent has got of texts for everybody; outlives the relay. `descriptors`:
  /// the limit on open files that commands get.
  Relay(asio::io_context& io, const SharedTexts& shared, Send send, const rlimit& descriptors)
      : io_(io), shared_(shared), send_(std::move(send)), descriptors_(descriptors) {}
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// A kTunnel message of the launcher. Throws SystemError for what makes no sense; late words
  /// about a command that has ended are dropped.
  void on_frame(const internal::Frame& frame);
  /// Looks which commands have ended; call after SIGCHLD. What they printed is sent first.
  void reap();
  /// For an agent that ends: its commands hear of it, and have until `deadline` to end by
  /// themselves.
  void close(internal::Deadline deadline);
  [[nodiscard]] bool owns(pid_t pid) const;
  /// Stops and resumes reading what commands print, as the launcher keeps up.
  void set_reading(bool reading);

 private:
  struct Tunnel {
    pid_t pid = -1;
    std::shared_ptr<ByteStream> stream;
    std::shared_ptr<ByteStream> errors;
  };

  void open(const internal::Frame& frame);
  void share(const internal::Frame& frame);
  Tunnel connect(ChildProcess child, std::uint32_t number);
  void check_queue(const Tunnel& tunnel);
  void send_image(std::uint32_t number, Tunnel& tunnel, const std::string& checksum);
  ByteStream::Callbacks callbacks_of(std::uint32_t number, std::uint8_t stream);
  void end(std::uint32_t number, int wait_status);

  asio::io_context& io_;
  const SharedTexts& shared_;
  Send send_;
  const rlimit descriptors_;
  std::map<std::uint32_t, Tunnel> tunnels_;
  std::optional<AgentImage> image_;
  bool reading_ = true;
};

}  // namespace chainmail::launch
