// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What starting a program by fork and exec has in common, whatever the child does in between: death
// with the parent, default signals, and news of a failed exec.
//
// Call from the main thread: PR_SET_PDEATHSIG fires when the *thread* that forked ends. What a
// child may do before exec is said at each way of making one.

#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {

struct Pipe {
  internal::UniqueFd read_end;
  internal::UniqueFd write_end;

  /// Closed on exec. Throws SystemError.
  Pipe();
};

/// Two ends of a socket of this machine, closed on exec. Throws SystemError.
struct SocketPair {
  explicit SocketPair(int type);
  internal::UniqueFd ours;
  internal::UniqueFd theirs;
};

/// For exec: pointers to the words, and a null.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& words);

/// How a fork went, in the parent.
struct Forked {
  pid_t pid = -1;
  int error = 0;  ///< errno when there is no child
};

namespace fork_detail {
/// In the parent: gives the child a process group of its own, and notes it for is_own_child().
[[nodiscard]] Forked after_fork(pid_t pid) noexcept;
/// As fork(), into the control group (v2) of that folder; see fork_beside(). The first of the two
/// ways that can be gone.
[[nodiscard]] pid_t fork_into(int group) noexcept;
/// The child is born there; Linux 5.7. -1 and errno where that cannot be.
[[nodiscard]] pid_t clone_into(int group) noexcept;
/// The child moves there, for which the kernel waits until all processors have passed a point of
/// rest: 5 to 20 ms.
[[nodiscard]] pid_t fork_and_move(int group) noexcept;
}  // namespace fork_detail

/// vfork(): nothing of this process is copied, which takes longer than all the rest; it goes on
/// when the child has called exec or _exit. `child` must do one of the two, may call only
/// async-signal-safe functions and may change nothing outside of itself. All signals are blocked,
/// so that none runs our handlers in the child.
template <typename Child>
[[nodiscard]] Forked fork_to_exec(const Child& child) {
  const SignalsBlocked blocked;
  const pid_t pid = vfork();
  if (pid == 0) {
    child();
    _exit(127);
  }
  return fork_detail::after_fork(pid);
}

/// fork(): this process goes on at once, whatever the child waits for. Of a process with one
/// thread, as the agent is, the child may call anything, allocate too: nobody held a lock when it
/// was copied. Of one with more, only async-signal-safe functions. `group`: the folder of a control
/// group (v2) that the child is to be in; where that cannot be, it is in its parent's. Such a child
/// is unknown to pthread_atfork's handlers, and its pthread_self() stands for its parent's thread.
template <typename Child>
[[nodiscard]] Forked fork_beside(const Child& child, int group = -1) {
  const SignalsBlocked blocked;
  const pid_t pid = group < 0 ? fork() : fork_detail::fork_into(group);
  if (pid == 0) {
    child();
    _exit(127);
  }
  return fork_detail::after_fork(pid);
}

/// Whether this process has made that one in one of these two ways, and has not asked for its end.
[[nodiscard]] bool is_own_child(pid_t pid);

/// In the child: a process group of its own, `death_signal` when `parent` dies (or has died), no
/// signal blocked or handled, and none ignored but `ignored`. Async-signal-safe.
void become_child_of(pid_t parent, int death_signal, std::span<const int> ignored = {}) noexcept;

/// In the child: tells the parent `error` and exits.
[[noreturn]] void report_and_exit(int report_fd, int error) noexcept;

/// In the parent: the errno of a failed exec, or 0 once the program runs (the pipe closes by
/// itself then).
[[nodiscard]] int wait_for_exec(Pipe& report);

}  // namespace chainmail::launch
