// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/reaper.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "launcher/process/fork_exec.h"

namespace chainmail::launch {
namespace {

pid_t start_process(std::vector<std::string> words, int input, int output) {
  const std::vector<char*> arguments = pointers_to(words);
  const Forked child = fork_to_exec([&] {
    setsid();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(input, STDIN_FILENO) >= 0 && dup2(output < 0 ? null : output, STDOUT_FILENO) >= 0 &&
        dup2(null, STDERR_FILENO) >= 0) {
      execv("/proc/self/exe", arguments.data());
    }
    _exit(127);
  });
  return child.pid;
}

}  // namespace

Reaper::~Reaper() {
  if (!is_there()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

// Where it was ended and asked about elsewhere, its number may be another process's.
bool Reaper::is_there() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

bool Reaper::start(std::vector<std::string> words, std::string text, int output) {
  words_ = std::move(words);
  text_ = std::move(text);
  output_ = output;
  Pipe pipe;
  const bool is_told =
      text_.size() <= PIPE_BUF && ::write(pipe.write_end.get(), text_.data(), text_.size()) ==
                                      static_cast<ssize_t>(text_.size());
  pid_ = is_told ? start_process(words_, pipe.read_end.get(), output_) : -1;
  alive_ = std::move(pipe.write_end);
  return pid_ > 0;
}

void Reaper::restore() {
  if (!words_.empty() && !is_there()) (void)start(words_, text_, output_);
}

void be_reaper() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_IGN);
  }
  prctl(PR_SET_NAME, kReaperName);
}

}  // namespace chainmail::launch
