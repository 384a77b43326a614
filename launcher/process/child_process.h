// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starts agents, remote shells and helpers.

#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

struct ChildProcess {
  pid_t pid = -1;
  internal::UniqueFd input;   ///< we write
  internal::UniqueFd output;  ///< we read
  internal::UniqueFd error;   ///< we read
};

/// Lets this process have many open files, where it may, until the end of the scope: each host that
/// is started from here takes three; each rank four, two more with PMI-1, one with input, and one
/// until its program runs.
class RaisedFileLimit {
 public:
  RaisedFileLimit();
  ~RaisedFileLimit();
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  /// The user's own limit, for children.
  const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

/// How a program of ours, or a remote shell, is started.
struct SpawnRequest {
  std::vector<std::string> arguments;
  /// "NAME=value" each; null: this process's.
  const std::vector<std::string>* environment = nullptr;
  std::vector<int> descriptors;        ///< become 0, 1, 2, ... there
  const rlimit* file_limit = nullptr;  ///< on its open files; null: this process's
  int death_signal = SIGKILL;          ///< when this process dies
  std::vector<int> ignored_signals = {};
};

/// Runs a program in a process group of its own, so that Ctrl-C in a terminal reaches the launcher
/// alone. Call from the main thread. Throws SystemError that names the program.
[[nodiscard]] pid_t spawn(const SpawnRequest& request);

/// The same with pipes; it gets SIGTERM when this process dies.
[[nodiscard]] ChildProcess start_child(const std::vector<std::string>& arguments,
                                       const rlimit* file_limit = nullptr,
                                       const std::vector<std::string>* environment = nullptr);

}  // namespace chainmail::launch
