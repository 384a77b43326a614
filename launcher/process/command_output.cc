// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/command_output.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

using Clock = std::chrono::steady_clock;

// False at the end of the stream.
bool read_some(int fd, std::string& text) {
  std::string block(65536, '\0');  // not on the stack, which schedulers limit
  const ssize_t count = read(fd, block.data(), block.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(block.data(), static_cast<std::size_t>(count));
  return count > 0;
}

// Between looks at a command that has closed its streams; its end shows no other way.
constexpr std::chrono::milliseconds kGlance{2};

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
  while (!advance(most_bytes)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      give_up();
      break;
    }
    wait_for_any({this}, left);
  }
  return std::move(output_);
}

bool RunningCommand::advance(std::size_t most_bytes) {
  const int fds[2] = {child_.output.get(), child_.error.get()};
  std::string* const texts[2] = {&output_.out, &output_.err};
  for (int i = 0; i < 2; ++i) {
    pollfd stream{fds[i], POLLIN, 0};
    std::size_t taken = 0;
    while (is_open_[i] && poll(&stream, 1, 0) > 0) {
      const std::size_t before = texts[i]->size();
      is_open_[i] = read_some(fds[i], *texts[i]);
      if (keeps_last_) {
        taken += texts[i]->size() - before;
        if (texts[i]->size() > most_bytes) texts[i]->erase(0, texts[i]->size() - most_bytes);
        if (taken > most_bytes) break;  // others have their turn
        continue;
      }
      if (output_.out.size() + output_.err.size() <= most_bytes) continue;
      output_ = {};
      output_.failure = "printed more than " + std::to_string(most_bytes >> 10) + " KiB";
      return true;
    }
  }
  return !is_open_[0] && !is_open_[1] && has_ended();
}

bool RunningCommand::program_has_ended() const {
  siginfo_t end{};
  return child_.pid <= 0 ||
         (waitid(P_PID, static_cast<id_t>(child_.pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          end.si_pid != 0);
}

void RunningCommand::give_up() {
  siginfo_t end{};
  const int asked = waitid(P_PID, static_cast<id_t>(child_.pid), &end, WEXITED | WNOHANG | WNOWAIT);
  if (asked != 0 || end.si_pid == 0) {
    output_.failure = "had not ended in time";
    return;
  }
  const bool is_success = end.si_code == CLD_EXITED && end.si_status == 0;
  output_.failure =
      (is_success ? "has ended, but"
                  : end_text(end.si_code != CLD_EXITED, end.si_status) + ", and") +
      std::string(
          " a process that it started keeps its output open (redirect that one's, as with "
          ">/dev/null 2>&1)");
}

bool RunningCommand::has_ended() {
  int status = 0;
  if (child_.pid > 0 && waitpid(child_.pid, &status, WNOHANG) != child_.pid) return false;
  child_.pid = 0;
  if (!WIFEXITED(status)) {
    output_.failure = end_text(true, WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    output_.failure = end_text(false, WEXITSTATUS(status));
  }
  return true;
}

void RunningCommand::wait_for_any(const std::vector<RunningCommand*>& commands,
                                  std::chrono::milliseconds time) {
  std::vector<pollfd> streams;
  for (const RunningCommand* command : commands) {
    if (command->is_open_[0]) streams.push_back({command->child_.output.get(), POLLIN, 0});
    if (command->is_open_[1]) streams.push_back({command->child_.error.get(), POLLIN, 0});
    if (!command->is_open_[0] && !command->is_open_[1]) time = std::min(time, kGlance);
  }
  (void)poll(streams.data(), streams.size(), static_cast<int>(time.count()));
}

}  // namespace chainmail::launch
