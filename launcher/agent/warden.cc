// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <new>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/agent/children.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/fork_exec.h"
#include "launcher/mpi/mpi_directories.h"
#include "launcher/staging/preload_store.h"

namespace chainmail::launch {
namespace {

constexpr const char* kWardenName = "chainmail-ward";  // 15 characters at most

// Only the agent may hold the channel, or its end would not be seen.
void give_up_channel() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
}

// Both processes have it.
std::atomic<std::int64_t>* shared_lease_ms = nullptr;

void share_lease() {
  void* place = mmap(nullptr, sizeof *shared_lease_ms, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return;  // the default will do
  shared_lease_ms = new (place) std::atomic<std::int64_t>(kDefaultLease.count());
}

// A stopped agent neither hears that its job is over nor ends its ranks. As long as the controller
// would wait for it, a debugger may hold it. Gives the last status that is no stop.
int outlast_stop(pid_t agent) {
  const auto deadline = internal::Deadline::after(std::chrono::milliseconds(
      shared_lease_ms == nullptr ? kDefaultLease.count() : shared_lease_ms->load()));
  int status = 0;
  while (waitpid(agent, &status, WNOHANG | WCONTINUED) == 0) {
    if (deadline.has_passed()) kill(agent, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return status;
}

volatile pid_t watched_agent = -1;

void hand_on(int number) { kill(watched_agent, number); }

[[noreturn]] void watch(pid_t agent, const std::string& marker) {
  give_up_channel();
  adopt_orphans();
  // `killall launcher` must not end both: what ranks have started would be nobody's.
  prctl(PR_SET_NAME, kWardenName);
  // For Slurm this is the task, and gets its signals; the agent knows what to do. The warden
  // outlives it.
  signal(SIGPIPE, SIG_IGN);
  watched_agent = agent;
  struct sigaction action {};
  action.sa_handler = hand_on;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
  for (const int number : kPassedSignals) sigaction(number, &action, nullptr);
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
  share_lease();
  const pid_t agent = fork();
  if (agent < 0) throw system_error("agent: cannot fork");
  if (agent > 0) watch(agent, marker);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != warden) _exit(1);
}

void tell_warden(std::chrono::milliseconds lease) {
  if (shared_lease_ms != nullptr) shared_lease_ms->store(lease.count());
}

}  // namespace chainmail::launch
