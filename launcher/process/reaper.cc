// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/reaper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "launcher/process/fork_exec.h"

namespace chainmail::launch {

pid_t start_reaper(std::vector<std::string> words, int parent_lives, int output) {
  const std::vector<char*> arguments = pointers_to(words);
  const Forked child = fork_to_exec([&] {
    setsid();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(parent_lives, STDIN_FILENO) >= 0 &&
        dup2(output < 0 ? null : output, STDOUT_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0) {
      execv("/proc/self/exe", arguments.data());
    }
    _exit(127);
  });
  return child.pid;
}

void be_reaper() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_IGN);
  }
  prctl(PR_SET_NAME, kReaperName);
}

}  // namespace chainmail::launch
