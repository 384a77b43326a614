// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Wakes up who waits for changes in folders. It may miss some: network file systems tell nothing of
// what other machines do, and links lead elsewhere. So who waits has to look from time to time
// anyway. Not thread-safe.

#pragma once

#include <chrono>
#include <set>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

class ChangeWatch {
 public:
  /// Where the kernel gives no more watches, wait() takes its time.
  ChangeWatch();

  /// A folder, as soon as it is there; nothing for one that is watched already.
  void add(const std::string& folder);

  /// Until something has changed, at most `time`.
  void wait(std::chrono::milliseconds time);

  /// Whether a descriptor is a pipe, or a socket, at whose other end nobody is.
  [[nodiscard]] static bool is_reader_gone(int out);

 private:
  internal::UniqueFd events_;
  std::set<std::string> folders_;
};

}  // namespace chainmail::launch
