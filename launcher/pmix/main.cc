// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `chainmail-pmix`: the PMIx server of one job on one node, started by the agent when a rank first
// calls MPI_Init, and killed with the job. Descriptor 3 is the socket to the agent, 4 the one
// through which connections of ranks come in.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"
#include "base/unique_fd.h"
#include "launcher/channel/wire.h"
#include "launcher/mpi/mpi_environment.h"
#include "launcher/mpi/mpi_wire.h"
#include "launcher/pmix/handed_sockets.h"
#include "launcher/pmix/pmix_server.h"

namespace {

using namespace chainmail;
using namespace chainmail::launch;

constexpr int kAgentFd = 3;
constexpr int kHandoffFd = 4;

// Without its agent there is no job. libpmix is not asked: it may hang.
[[noreturn]] void leave(int code) { _exit(code); }

// Called by libpmix's thread, too.
void send_to_agent(const MpiMessage& message) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  send_in_pieces(message, [](std::string body) {
    const std::string bytes = encode_frame(make_frame(AgentMessage::kMpi, std::move(body)));
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t count = send(kAgentFd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) leave(1);
      at += static_cast<std::size_t>(count);
    }
  });
}

class Agent {
 public:
  /// The next message, or nothing when `limit_ms` have passed (-1: waits for ever).
  std::optional<MpiMessage> receive(int limit_ms) {
    while (true) {
      while (const auto frame = frames_.next()) {
        if (auto message = pieces_.add(frame->body)) return message;
      }
      pollfd agent{kAgentFd, POLLIN, 0};
      if (poll(&agent, 1, limit_ms) == 0) return std::nullopt;
      std::array<std::byte, 65536> buffer;
      const ssize_t count = recv(kAgentFd, buffer.data(), buffer.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) leave(0);
      frames_.append(std::span(buffer).first(static_cast<std::size_t>(count)));
    }
  }

 private:
  internal::FrameReader frames_;
  MpiPieces pieces_;
};

void serve() {
  Agent agent;
  const MpiMessage first = *agent.receive(-1);
  if (first.op != MpiOp::kConfigure) throw SystemError("the agent does not say what to do", EPROTO);
  const PmixPlace place{first.key, static_cast<std::uint16_t>(first.status)};
  use_handed_sockets(internal::UniqueFd(kHandoffFd), place.port);
  const MpiOrder order = decode_mpi_order(first.data);
  check_mpi_order(order);
  start_pmix_server(order, place.directory, first.entries, send_to_agent);
  send_to_agent({.op = MpiOp::kReady});
  while (true) {
    const auto limit = expire_pmix_lookups();
    // A lookup that libpmix asks for meanwhile has its limit looked at within a second.
    auto message =
        agent.receive(limit ? static_cast<int>(std::min<long>(limit->count(), 1000)) : 1000);
    if (message) handle_for_pmix(std::move(*message));
  }
}

}  // namespace

int main() {
  if (fcntl(kAgentFd, F_GETFD) < 0 || fcntl(kHandoffFd, F_GETFD) < 0) {
    std::fprintf(stderr, "chainmail-pmix is started by the launcher, not by hand\n");
    return 2;
  }
  try {
    serve();
  } catch (const std::exception& error) {
    send_to_agent({.op = MpiOp::kUnserved, .data = error.what()});
  }
  leave(1);
}
