// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_discovery.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "launcher/controller/child_process.h"

namespace chainmail::launch {
namespace {

using Clock = std::chrono::steady_clock;

struct Outcome {
  std::string out;
  std::string err;
  int status = 0;
};

// Ends the program and its children where the job does not go on.
class Killed {
 public:
  explicit Killed(pid_t pid) : pid_(pid) {}
  Killed(const Killed&) = delete;
  Killed& operator=(const Killed&) = delete;
  ~Killed() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// The status of a program that ended before `deadline`.
  std::optional<int> wait_until(Clock::time_point deadline) {
    for (;;) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return status;
      }
      if (Clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  pid_t pid_;
};

// False at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> block{};
  const ssize_t count = read(fd, block.data(), block.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(block.data(), static_cast<std::size_t>(count));
  return count > 0;
}

class DiscoverySource final : public HostSource {
 public:
  DiscoverySource(std::vector<std::string> command, HostfileRules rules,
                  std::chrono::milliseconds limit)
      : command_(std::move(command)), rules_(rules), limit_(limit) {}

  std::optional<HostSet> hosts() const override {
    const Outcome outcome = run();
    if (!WIFEXITED(outcome.status)) {
      throw failure("was killed by signal " + std::to_string(WTERMSIG(outcome.status)), outcome);
    }
    if (WEXITSTATUS(outcome.status) != 0) {
      throw failure("exited with code " + std::to_string(WEXITSTATUS(outcome.status)), outcome);
    }
    HostSet set;
    set.source = "host discovery by " + command_.front();
    set.hosts = parse_hostfile(outcome.out, "output of " + command_.front(), rules_);
    return set;
  }

 private:
  HostsError failure(const std::string& what, const Outcome& outcome) const {
    std::string message = "--host-discovery " + command_.front() + " " + what +
                          "; it must print lines such as 'node1 slots=4' and exit with 0 within " +
                          std::to_string(limit_.count() / 1000) + " s";
    std::istringstream lines(outcome.err.empty() ? outcome.out : outcome.err);
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < 10; ++count) {
      message += "\n  | " + printable(line);
    }
    return HostsError(message);
  }

  Outcome run() const {
    ChildProcess child;
    try {
      child = start_child(command_);
    } catch (const SystemError& error) {
      throw HostsError("--host-discovery: " + std::string(error.what()) +
                       "; it must be executable, and its first line name an interpreter");
    }
    Killed process(child.pid);
    child.input.reset();
    const auto deadline = Clock::now() + limit_;
    Outcome outcome;
    const std::string late = "had not ended after " + std::to_string(limit_.count()) + " ms";
    std::array<pollfd, 2> streams{pollfd{child.output.get(), POLLIN, 0},
                                  pollfd{child.error.get(), POLLIN, 0}};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) throw failure(late, outcome);
      if (poll(streams.data(), streams.size(), static_cast<int>(left.count())) < 0) continue;
      if (streams[0].revents != 0 && !read_some(streams[0].fd, outcome.out)) streams[0].fd = -1;
      if (streams[1].revents != 0 && !read_some(streams[1].fd, outcome.err)) streams[1].fd = -1;
      if (outcome.out.size() + outcome.err.size() > kMaxHostTextBytes) {
        throw failure("printed more than " + std::to_string(kMaxHostTextBytes >> 20) + " MiB", {});
      }
    }
    const auto status = process.wait_until(deadline);
    if (!status) throw failure(late, outcome);
    outcome.status = *status;
    return outcome;
  }

  std::vector<std::string> command_;
  HostfileRules rules_;
  std::chrono::milliseconds limit_;
};

}  // namespace

std::unique_ptr<HostSource> discovery_source(std::vector<std::string> command,
                                             const HostfileRules& rules,
                                             std::chrono::milliseconds limit) {
  return std::make_unique<DiscoverySource>(std::move(command), rules, limit);
}

}  // namespace chainmail::launch
