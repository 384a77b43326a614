// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/fork_exec.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <set>

#include "base/error.h"

namespace chainmail::launch {
namespace {

// A sanitizer with a thread of its own has to know of each fork.
#ifdef __SANITIZE_THREAD__
constexpr bool kClonesByHand = false;
#else
constexpr bool kClonesByHand = true;
#endif

// Of linux/sched.h, which older systems have without them.
constexpr long kClone3 = 435;
constexpr std::uint64_t kIntoGroup = 0x200000000;  // CLONE_INTO_CGROUP
struct CloneArguments {
  std::uint64_t flags = kIntoGroup;
  std::uint64_t unused[3] = {};
  std::uint64_t exit_signal = SIGCHLD;
  std::uint64_t unused_too[5] = {};
  std::uint64_t group = 0;
};
static_assert(sizeof(CloneArguments) == 88);

// What fork_to_exec() and fork_beside() have made.
class OwnChildren {
 public:
  void add(pid_t pid) {
    const std::lock_guard lock(mutex_);
    if (pids_.size() >= next_look_) forget_reaped();
    pids_.insert(pid);
  }
  bool has(pid_t pid) {
    const std::lock_guard lock(mutex_);
    return pids_.contains(pid) && is_there(pid);
  }

 private:
  static bool is_there(pid_t pid) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  }
  void forget_reaped() {
    std::erase_if(pids_, [](pid_t pid) { return !is_there(pid); });
    next_look_ = std::max<std::size_t>(64, 2 * pids_.size());
  }

  std::mutex mutex_;
  std::set<pid_t> pids_;
  std::size_t next_look_ = 64;
};

OwnChildren& own_children() {
  static OwnChildren children;
  return children;
}

}  // namespace

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("cannot make a pipe");
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
}

SocketPair::SocketPair(int type) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_error("cannot make a socket pair");
  }
  ours.reset(ends[0]);
  theirs.reset(ends[1]);
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

Forked fork_detail::after_fork(pid_t pid) noexcept {
  if (pid < 0) return {-1, errno};
  setpgid(pid, pid);  // in both processes, whichever comes first
  own_children().add(pid);
  return {pid, 0};
}

bool is_own_child(pid_t pid) { return own_children().has(pid); }

pid_t fork_detail::clone_into(int group) noexcept {
  CloneArguments how;
  how.group = static_cast<std::uint64_t>(group);
  return static_cast<pid_t>(syscall(kClone3, &how, sizeof how));
}

pid_t fork_detail::fork_and_move(int group) noexcept {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int entrance = openat(group, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (entrance >= 0) {
    (void)!write(entrance, "0", 1);
    close(entrance);
  }
  return 0;
}

pid_t fork_detail::fork_into(int group) noexcept {
  const pid_t pid = kClonesByHand ? clone_into(group) : -1;
  return pid >= 0 ? pid : fork_and_move(group);
}

void become_child_of(pid_t parent, int death_signal, std::span<const int> ignored) noexcept {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, death_signal);
  // The parent may have died before the line above; then nobody would ever end us.
  if (getppid() != parent) _exit(127);
  for (int number = 1; number < NSIG; ++number) {
    const bool is_ignored = std::find(ignored.begin(), ignored.end(), number) != ignored.end();
    signal(number, is_ignored ? SIG_IGN : SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void report_and_exit(int report_fd, int error) noexcept {
  [[maybe_unused]] const auto written = write(report_fd, &error, sizeof error);
  _exit(127);
}

int wait_for_exec(Pipe& report) {
  report.write_end.reset();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(report.read_end.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof error) ? error : 0;
}

}  // namespace chainmail::launch
