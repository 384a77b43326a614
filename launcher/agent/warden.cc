// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <chrono>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/agent/children.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/mpi/mpi_directories.h"
#include "launcher/staging/preload_store.h"

namespace chainmail::launch {
namespace {

// Only the agent may hold the channel, or its end would not be seen.
void give_up_channel() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
}

// A stopped agent neither hears that its job is over nor ends its ranks. As long as the controller
// would wait for it, a debugger may hold it. Gives the last status that is no stop.
int outlast_stop(pid_t agent) {
  const auto deadline = internal::Deadline::after(kLease);
  int status = 0;
  while (waitpid(agent, &status, WNOHANG | WCONTINUED) == 0) {
    if (deadline.has_passed()) kill(agent, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return status;
}

volatile sig_atomic_t agent_of_warden = 0;

void pass_on(int number) { kill(static_cast<pid_t>(agent_of_warden), number); }

[[noreturn]] void watch(pid_t agent, const std::string& marker) {
  give_up_channel();
  adopt_orphans();
  // Signals to the group are for the agent, which knows what to do; the warden outlives it. Slurm
  // tells the one process alone that it has started.
  for (const int number : {SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) signal(number, SIG_IGN);
  agent_of_warden = agent;
  signal(SIGTERM, pass_on);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(-1, &status, WUNTRACED);
    if (ended < 0 && errno != EINTR) break;
    if (ended != agent) continue;
    if (WIFSTOPPED(status)) status = outlast_stop(agent);
    if (!WIFCONTINUED(status)) break;
  }
  (void)end_all_children(internal::Deadline::after(std::chrono::milliseconds(1000)));
  // Only an agent that was killed leaves any.
  if (WIFSIGNALED(status)) {
    remove_mpi_directories({marker});
    remove_preloaded({marker});
  }
  // By signal, the remote shell would report nothing that can be told from its own failures, and
  // Grid Engine would end the whole job: always exit.
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

void fork_under_warden(const std::string& marker) {
  const pid_t warden = getpid();
  const pid_t agent = fork();
  if (agent < 0) throw system_error("agent: cannot fork");
  if (agent > 0) watch(agent, marker);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != warden) _exit(1);
}

}  // namespace chainmail::launch
