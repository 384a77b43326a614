// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starts an agent or a remote shell with pipes on its standard streams.

#pragma once

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

/// Runs `arguments` in a process group of its own, so that Ctrl-C in a terminal reaches the
/// launcher alone; gets SIGTERM when the launcher dies. Call from the main thread. Throws
/// SystemError that names the program.
[[nodiscard]] ChildProcess start_child(const std::vector<std::string>& arguments);

}  // namespace chainmail::launch
