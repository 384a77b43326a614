// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What starting a program by fork and exec has in common, whatever the child does in between: death
// with the parent, default signals, and news of a failed exec.
//
// Call from the main thread: PR_SET_PDEATHSIG fires when the *thread* that forked ends. Between
// fork and exec only async-signal-safe functions may be called.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

struct Pipe {
  internal::UniqueFd read_end;
  internal::UniqueFd write_end;

  /// Closed on exec. Throws SystemError.
  Pipe();
};

/// For exec: pointers to the words, and a null.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& words);

/// fork() with all signals blocked in both, so that none runs our handlers in the child.
class BlockedFork {
 public:
  BlockedFork();
  BlockedFork(const BlockedFork&) = delete;
  BlockedFork& operator=(const BlockedFork&) = delete;
  /// As fork() returned it.
  pid_t pid() const noexcept { return pid_; }
  /// errno of a fork that failed.
  int error() const noexcept { return error_; }

 private:
  pid_t pid_;
  int error_;
};

/// In the child: a process group of its own, `death_signal` when `parent` dies (or has died), no
/// signal blocked or handled.
void become_child_of(pid_t parent, int death_signal) noexcept;

/// In the child: tells the parent `error` and exits.
[[noreturn]] void report_and_exit(int report_fd, int error) noexcept;

/// In the parent: the errno of a failed exec, or 0 once the program runs (the pipe closes by
/// itself then).
[[nodiscard]] int wait_for_exec(Pipe& report);

}  // namespace chainmail::launch
