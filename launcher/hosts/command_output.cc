// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/command_output.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

namespace chainmail::launch {
namespace {

using Clock = std::chrono::steady_clock;

// False at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> block{};
  const ssize_t count = read(fd, block.data(), block.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(block.data(), static_cast<std::size_t>(count));
  return count > 0;
}

constexpr const char* kLate = "had not ended in time";

}  // namespace

RunningCommand::RunningCommand(const std::vector<std::string>& arguments, const std::string& input)
    : child_(start_child(arguments)) {
  // A pipe holds this much, so that nobody waits here; who does not read it loses it.
  const auto before = signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const auto written = write(child_.input.get(), input.data(), input.size());
  signal(SIGPIPE, before);
  child_.input.reset();
}

RunningCommand::~RunningCommand() {
  if (child_.pid <= 0) return;
  kill(-child_.pid, SIGKILL);
  waitpid(child_.pid, nullptr, 0);
}

CommandOutput RunningCommand::finish(Clock::time_point deadline, std::size_t most_bytes) {
  CommandOutput output;
  read_until(deadline, most_bytes, output);
  if (output.failure.empty()) wait_until(deadline, output);
  return output;
}

void RunningCommand::read_until(Clock::time_point deadline, std::size_t most_bytes,
                                CommandOutput& output) {
  std::array<pollfd, 2> streams{pollfd{child_.output.get(), POLLIN, 0},
                                pollfd{child_.error.get(), POLLIN, 0}};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      output.failure = kLate;
      return;
    }
    if (poll(streams.data(), streams.size(), static_cast<int>(left.count())) < 0) continue;
    if (streams[0].revents != 0 && !read_some(streams[0].fd, output.out)) streams[0].fd = -1;
    if (streams[1].revents != 0 && !read_some(streams[1].fd, output.err)) streams[1].fd = -1;
    if (output.out.size() + output.err.size() > most_bytes) {
      output = {};
      output.failure = "printed more than " + std::to_string(most_bytes >> 10) + " KiB";
      return;
    }
  }
}

void RunningCommand::wait_until(Clock::time_point deadline, CommandOutput& output) {
  int status = 0;
  while (waitpid(child_.pid, &status, WNOHANG) != child_.pid) {
    if (Clock::now() >= deadline) {
      output.failure = kLate;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  child_.pid = 0;
  if (!WIFEXITED(status)) {
    output.failure = "was killed by signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    output.failure = "exited with code " + std::to_string(WEXITSTATUS(status));
  }
}

}  // namespace chainmail::launch
