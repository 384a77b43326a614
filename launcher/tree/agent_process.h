// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The process that leads to an agent, the agent itself or a remote shell, wherever it runs: here,
// or on a host whose agent carries it (tunnels.h). One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "launcher/channel/byte_stream.h"
#include "launcher/process/child_process.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/tree/shared_texts.h"

namespace chainmail::launch {

class AgentProcess {
 public:
  struct Exit {
    int code = -1;     ///< -1: not by itself
    std::string text;  ///< "exited with code 255"
  };

  virtual ~AgentProcess() = default;
  /// Its standard input and output. To be called once.
  [[nodiscard]] virtual std::shared_ptr<ByteTransport> connect(ByteStream::Callbacks callbacks) = 0;
  /// Its standard error. To be called once.
  virtual void read_errors(std::function<void(std::span<const std::byte>)> on_bytes) = 0;
  /// Delivers what it has printed there already.
  virtual void drain_errors() = 0;
  /// Nothing is delivered from here on.
  virtual void stop_reading() = 0;
  /// To its standard input: the program that `start` names.
  virtual void send_image(const AgentStart& start) = 0;
  /// To its standard input: a text that whoever carries it, if anybody does, has got before.
  virtual void send_shared(std::uint32_t number, const SharedFrames& frames) = 0;
  /// How it ended, once, when it has.
  [[nodiscard]] virtual std::optional<Exit> reap() = 0;
  virtual void kill() = 0;
};

/// A child of this process.
class LocalAgentProcess : public AgentProcess {
 public:
  /// Throws SystemError when the command cannot be run. `descriptors`: its limit on open files.
  LocalAgentProcess(asio::io_context& io, const AgentStart& start, const rlimit& descriptors);
  ~LocalAgentProcess() override;
  LocalAgentProcess(const LocalAgentProcess&) = delete;
  LocalAgentProcess& operator=(const LocalAgentProcess&) = delete;

  std::shared_ptr<ByteTransport> connect(ByteStream::Callbacks callbacks) override;
  void read_errors(std::function<void(std::span<const std::byte>)> on_bytes) override;
  void drain_errors() override;
  void stop_reading() override;
  void send_image(const AgentStart& start) override;
  void send_shared(std::uint32_t number, const SharedFrames& frames) override;
  std::optional<Exit> reap() override;
  void kill() override;

 private:
  asio::io_context& io_;
  ChildProcess child_;
  std::shared_ptr<ByteStream> stream_;
  std::shared_ptr<ByteStream> errors_;
};

}  // namespace chainmail::launch
