// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/files/agent_folders.h"
#include "launcher/process/children.h"
#include "launcher/process/fork_exec.h"
#include "launcher/process/reaper.h"

namespace chainmail::launch {
namespace {

constexpr const char* kSupervisorName = "chainmail-super";  // 15 characters at most
// For an agent that has lost its reaper to end its ranks.
constexpr std::chrono::milliseconds kAgentsTime{2500};

// Only the agent may hold the channel, or its end would not be seen.
void give_up_channel() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
}

// All three processes have it.
std::atomic<std::int64_t>* shared_lease_ms = nullptr;

void share_lease() {
  void* place = mmap(nullptr, sizeof *shared_lease_ms, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return;  // the default will do
  shared_lease_ms = new (place) std::atomic<std::int64_t>(kDefaultLease.count());
}

// The process above the supervisor, if it is the launcher; 0: something else, a remote shell.
pid_t launcher_here = 0;

// A remote shell that becomes what it is to start leaves it there, too; whose program that is can
// be seen by root alone.
void look_for_launcher(bool is_child) {
  struct stat own {};
  struct stat above {};
  const pid_t parent = getppid();
  if (is_child) {
    launcher_here = parent;
    return;
  }
  if (stat("/proc/self/exe", &own) != 0) return;
  if (stat(("/proc/" + std::to_string(parent) + "/exe").c_str(), &above) != 0) return;
  if (own.st_dev == above.st_dev && own.st_ino == above.st_ino) launcher_here = parent;
}

// A stopped agent neither hears that its job is over nor ends its ranks. As long as the controller
// would wait for it, a debugger may hold it. Gives the last status that is no stop.
int outlast_stop(pid_t below) {
  const auto begin = std::chrono::steady_clock::now();
  const auto lease = [] {
    return shared_lease_ms == nullptr ? kDefaultLease
                                      : std::chrono::milliseconds(shared_lease_ms->load());
  };
  int status = 0;
  while (waitpid(below, &status, WNOHANG | WCONTINUED) == 0) {
    if (std::chrono::steady_clock::now() - begin >= lease()) kill(below, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return status;
}

// Of this process: whom signals go to, and without whom it does not go on; 0: nobody.
volatile pid_t process_below = 0;
volatile pid_t process_above = 0;

void hand_on(int number) {
  const pid_t below = process_below;
  if (below <= 0) return;
  const int error = errno;
  // The kernel's news that the process above has died.
  const bool is_alone = process_above > 0 && getppid() != process_above;
  kill(below, is_alone ? SIGKILL : number);
  errno = error;
}

// For Slurm the supervisor is the task, and gets its signals; the agent knows what to do. Both
// outlive it.
void hand_signals_on(pid_t below, pid_t above) {
  process_below = below;
  process_above = above;
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action {};
  action.sa_handler = hand_on;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
  for (const int number : kPassedSignals) sigaction(number, &action, nullptr);
  // It may have died before that.
  if (above > 0 && getppid() != above) kill(below, SIGKILL);
}

void die_with(pid_t parent, int death_signal) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(1);
}

// By signal, the remote shell would report nothing that can be told from its own failures, and Grid
// Engine would end the whole job: always exit.
int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A program's name is in its command line, too.
void take_name(const char* name, std::span<char> arguments) {
  prctl(PR_SET_NAME, name);
  std::fill(arguments.begin(), arguments.end(), '\0');
  std::string_view(name).copy(arguments.data(), arguments.size());
}

// What earlier jobs have left on this machine. Some file systems take their time.
void start_sweep() {
  const pid_t parent = getpid();
  {
    const SignalsBlocked blocked;
    if (fork() != 0) return;
    process_below = 0;  // signals are for the agent, and not from here
  }
  die_with(parent, SIGKILL);
  (void)!nice(19);                          // the ranks that start meanwhile come first
  (void)dup2(STDIN_FILENO, STDERR_FILENO);  // the remote shell waits for its end
  end_stale_groups();
  remove_stale_folders();
  _exit(0);
}

// Where it cannot be known: as if with code 1.
constexpr int kUnknownEnd = 1 << 8;

// The status with which the process below ends; whoever else ends meanwhile is reaped. One that is
// stopped is killed after the lease.
int wait_for_end_of(pid_t below) {
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(-1, &status, WUNTRACED);
    if (ended < 0 && errno != EINTR) return kUnknownEnd;
    if (ended != below) continue;
    if (WIFSTOPPED(status)) status = outlast_stop(below);
    if (!WIFCONTINUED(status)) return status;
  }
}

[[noreturn]] void reap(pid_t agent, const std::string& marker, const ControlGroup& group) {
  start_sweep();
  const int status = wait_for_end_of(agent);
  process_below = 0;  // its number may be another process's from here on
  group.kill_all();
  end_slow_children();
  group.remove();
  // Only an agent that was killed leaves any.
  if (WIFSIGNALED(status)) remove_agent_folders({marker});
  _exit(exit_code_of(status));
}

[[noreturn]] void watch(pid_t reaper, const std::string& marker, const ControlGroup& group) {
  const int status = wait_for_end_of(reaper);
  process_below = 0;
  if (WIFSIGNALED(status)) {
    // The agent knows already and ends its ranks in order.
    const auto agents_time = internal::Deadline::after(kAgentsTime);
    while (!agents_time.has_passed() && (waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    group.kill_all();
    end_slow_children();
    remove_agent_folders({marker});
  }
  group.remove();
  _exit(exit_code_of(status));
}

}  // namespace

ControlGroup fork_under_supervisor(const std::string& marker, std::span<char> arguments,
                                   bool is_child) {
  const pid_t supervisor = getpid();
  share_lease();
  look_for_launcher(is_child);
  adopt_orphans();
  ControlGroup group = ControlGroup::make_below_own();
  const pid_t reaper = fork();
  if (reaper < 0) {
    const auto error = system_error("agent: cannot fork");
    group.remove();
    throw error;
  }
  if (reaper > 0) {
    give_up_channel();
    prctl(PR_SET_NAME, kSupervisorName);
    hand_signals_on(reaper, 0);
    watch(reaper, marker, group);
  }
  die_with(supervisor, SIGTERM);
  setsid();
  adopt_orphans();
  const pid_t own = getpid();
  const pid_t agent = fork();
  if (agent < 0) throw system_error("agent: cannot fork");
  if (agent > 0) {
    give_up_channel();
    take_name(kReaperName, arguments);
    hand_signals_on(agent, supervisor);
    reap(agent, marker, group);
  }
  die_with(own, SIGTERM);
  return group;
}

bool is_launcher_at_work() { return launcher_here > 0 && is_at_work(launcher_here); }

void tell_supervisor(std::chrono::milliseconds lease) {
  if (shared_lease_ms != nullptr) shared_lease_ms->store(lease.count());
}

}  // namespace chainmail::launch
