// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A supervisor that goes on when its caller, the terminal and the login end; and its caller, which
// waits until the ranks have started. Where logind ends all processes of a session with it, the
// supervisor moves to a scope of its own.
//
// The main thread's, before there are others.

#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace chainmail::launch {

/// What the supervisor tells its caller. Thread-safe.
class News {
 public:
  explicit News(int fd) : fd_(fd) {}
  /// A line to show.
  void say(const std::string& line) const;
  /// The caller may end, with this code: nothing else is told.
  void settle(int exit_code);

 private:
  mutable std::mutex mutex_;
  int fd_;
};

/// Forks. In the child, which is in a session of its own with nothing but /dev/null for input and
/// output, `supervise` is called, and its result is the child's exit code. In the parent:
/// `let_go`, since the job is the child's now; waits for News::settle(), at once where `is_waiting`
/// is false; the exit code. Throws SystemError where no process can be had.
[[nodiscard]] int detach(bool is_waiting, const std::string& job,
                         const std::function<int(News& news)>& supervise,
                         const std::function<void()>& let_go);

/// Where logind ends what a session leaves behind: moves this process to a scope of the user's own
/// manager. A warning for the user, or nothing. Bounded.
[[nodiscard]] std::string leave_session(const std::string& job);

}  // namespace chainmail::launch
