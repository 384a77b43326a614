// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/children.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace chainmail::launch {

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> children_of_this_process() {
  const std::string own = std::to_string(getpid());
  // Only the main thread makes children; orphans are given to it as well.
  std::ifstream list("/proc/" + own + "/task/" + own + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

std::vector<pid_t> end_all_children(internal::Deadline deadline) {
  while (true) {
    const std::vector<pid_t> children = children_of_this_process();
    for (const pid_t child : children) kill(child, SIGKILL);
    pid_t reaped = 0;
    do {
      reaped = waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    // The list can miss children while others come and go, and one that died a moment ago may
    // just have handed its own to us; only the kernel's "no child" is certain.
    if ((reaped < 0 && errno == ECHILD) || deadline.has_passed()) return children;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace chainmail::launch
