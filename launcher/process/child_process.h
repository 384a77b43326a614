// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starts an agent or a remote shell with pipes on its standard streams.

#pragma once

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

/// Runs `arguments` in a process group of its own, so that Ctrl-C in a terminal reaches the
/// launcher alone; gets SIGTERM when the launcher dies. Call from the main thread. Throws
/// SystemError that names the program. `descriptors`: its limit on open files; `environment`:
/// "NAME=value" each; null: this process's.
[[nodiscard]] ChildProcess start_child(const std::vector<std::string>& arguments,
                                       const rlimit* descriptors = nullptr,
                                       const std::vector<std::string>* environment = nullptr);

}  // namespace chainmail::launch
