// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/detach.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/job/exit_code.h"
#include "launcher/jobs/commands/verb_call.h"
#include "launcher/process/command_output.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr std::chrono::seconds kBusPatience{5};
constexpr std::size_t kMostBusOutput = 4096;

// A line that begins so is the exit code; no other does.
constexpr char kSettledMark = '\1';

void tell_caller(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the caller has gone: nobody waits
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Whoever waits for the end of a pipe, or of a lock, does not wait for this job. What this process
// has opened itself is closed on exec.
void close_inherited() {
  std::vector<int> inherited;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const int flags = fcntl(fd, F_GETFD);
    if (fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0) inherited.push_back(fd);
  }
  for (const int fd : inherited) close(fd);
}

void leave_terminal() {
  setsid();
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(null.get(), fd);
}

// Until it has settled or ended.
int follow(int fd, const std::string& job) {
  std::string text;
  char block[4096];
  while (true) {
    const ssize_t count = read(fd, block, sizeof(block));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      std::cerr << "launcher: the supervisor of job " << job
                << " has ended without a word: was it killed? launcher show " << job << std::endl;
      return exit_code::kLauncherError;
    }
    text.append(block, static_cast<std::size_t>(count));
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (!line.empty() && line.front() == kSettledMark) return std::atoi(line.c_str() + 1);
      std::cerr << line << std::endl;
    }
  }
}

std::string bus_output(const std::vector<std::string>& command) {
  try {
    RunningCommand running(command, "");
    CommandOutput output =
        running.finish(std::chrono::steady_clock::now() + kBusPatience, kMostBusOutput);
    return output.failure.empty() ? output.out : "";
  } catch (const SystemError&) {
    return "";
  }
}

}  // namespace

void News::say(const std::string& line) const {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) tell_caller(fd_, line + "\n");
}

void News::settle(int exit_code) {
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) return;
  tell_caller(fd_, kSettledMark + std::to_string(exit_code) + "\n");
  close(fd_);
  fd_ = -1;
}

int detach(bool is_waiting, const std::string& job, const std::function<int(News& news)>& supervise,
           const std::function<void()>& let_go) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw system_error("cannot detach the job");
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) throw system_error("cannot detach the job");
  if (pid > 0) {
    writer.reset();
    let_go();
    exit_on_interrupt("job " + job + " goes on; 'launcher stop " + job + "' ends it");
    return is_waiting ? follow(reader.get(), job) : 0;
  }
  int code = exit_code::kLauncherError;
  reader.reset();
  leave_terminal();
  close_inherited();
  News news(writer.release());
  try {
    code = supervise(news);
  } catch (const std::exception& error) {
    news.say(std::string("launcher: ") + error.what());
  }
  news.settle(code);
  // What the parent's exit() does is the parent's.
  _exit(code);
}

std::string leave_session(const std::string& job) {
  if (std::getenv("XDG_SESSION_ID") == nullptr || !is_in_path("busctl")) return "";
  const std::string kills =
      bus_output({"busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
                  "org.freedesktop.login1.Manager", "KillUserProcesses"});
  if (kills.find("true") == std::string::npos) return "";
  // systemd-run --user --scope does the same for a program that it starts.
  const std::string made =
      bus_output({"busctl", "--user", "call", "org.freedesktop.systemd1",
                  "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
                  "StartTransientUnit", "ssa(sv)a(sa(sv))", "chainmail-" + job + ".scope", "fail",
                  "1", "PIDs", "au", "1", std::to_string(getpid()), "0"});
  const std::string linger =
      "logind ends all processes of a session with it here (KillUserProcesses=yes); so that the "
      "job outlives your last session, type once: loginctl enable-linger";
  if (!made.empty()) return linger;
  return linger +
         ". The job could not be moved to a scope of its own, and will end with this "
         "session: start it by systemd-run --user --scope";
}

}  // namespace chainmail::launch
