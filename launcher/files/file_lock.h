// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A file that one job at a time works with, and that stays its own for a while when its launcher is
// killed: what runs elsewhere still ends then.
//
// One thread. Waits are for processes that end by themselves.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "launcher/process/reaper.h"

namespace chainmail::launch {

class FileLock {
 public:
  struct Held {
    bool is_ours = true;
    pid_t owner = 0;  ///< otherwise: who has it, where that can be known
  };

  /// Makes the file if need be. When this process is killed, the lock lasts for `outlives`. Waits
  /// where it is somebody's who has been killed, or who cannot be seen (0) as in another container:
  /// for that one no longer than somebody who has been killed would have it. Calls `on_wait`
  /// when it waits on. A file that cannot be opened is ours.
  [[nodiscard]] Held take(const std::string& path, std::chrono::milliseconds outlives,
                          const std::function<void(pid_t owner)>& on_wait);

  /// Where all children of this process were ended, what makes the lock last was among them.
  void renew() { keeper_.restore(); }

 private:
  internal::UniqueFd file_;
  Reaper keeper_;
};

/// The keeper: has the lock as its standard output, and as its standard input what ends with this
/// process.
void keep_lock(std::chrono::milliseconds outlives);

}  // namespace chainmail::launch
