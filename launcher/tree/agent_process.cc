// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/agent_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "launcher/process/signals.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {

LocalAgentProcess::LocalAgentProcess(asio::io_context& io, const AgentStart& start,
                                     const rlimit& descriptors)
    : io_(io) {
  if (start.is_local()) {
    child_ = start_child(start.command, &descriptors);
  } else {
    const std::vector<std::string> environment = starter_environment();
    child_ = start_child(start.command, &descriptors, &environment);
  }
}

LocalAgentProcess::~LocalAgentProcess() { stop_reading(); }

std::shared_ptr<ByteTransport> LocalAgentProcess::connect(ByteStream::Callbacks callbacks) {
  stream_ = ByteStream::make(io_, std::move(child_.output), std::move(child_.input),
                             std::move(callbacks));
  return stream_;
}

void LocalAgentProcess::read_errors(std::function<void(std::span<const std::byte>)> on_bytes) {
  errors_ = ByteStream::make(io_, std::move(child_.error), {}, {.on_bytes = std::move(on_bytes)});
  errors_->start();
}

void LocalAgentProcess::drain_errors() {
  if (errors_) errors_->drain();
}

void LocalAgentProcess::stop_reading() {
  if (stream_) stream_->close();
  if (errors_) errors_->close();
}

void LocalAgentProcess::send_image(const AgentStart& start) { stream_->write_shared(start.image); }

void LocalAgentProcess::send_shared(std::uint32_t /*number*/, const SharedFrames& frames) {
  for (const auto& frame : frames) stream_->write_shared(frame);
}

std::optional<AgentProcess::Exit> LocalAgentProcess::reap() {
  int status = 0;
  if (child_.pid < 0 || waitpid(child_.pid, &status, WNOHANG) != child_.pid) return std::nullopt;
  child_.pid = -1;
  if (!WIFEXITED(status)) return Exit{-1, end_text(true, WTERMSIG(status))};
  return Exit{WEXITSTATUS(status), end_text(false, WEXITSTATUS(status))};
}

void LocalAgentProcess::kill() {
  if (child_.pid > 0) ::kill(-child_.pid, SIGKILL);
}

}  // namespace chainmail::launch
