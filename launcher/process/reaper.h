// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Processes that outlive the launcher and clear up after it, however it ended.
//
// The main thread's.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

/// What `ps` and `pkill` know a process by that ends what is left of a job. Not the launcher's
/// name.
inline constexpr char kReaperName[] = "job-reaper";  // 15 characters at most

/// One of them, for as long as the object lives.
class Reaper {
 public:
  Reaper() = default;
  /// Ends it.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  /// Starts this program anew with `words` as its command line: a copy of this process would hold
  /// the job's secret. Its standard input is `text` (at most PIPE_BUF bytes), and ends with this
  /// process; `output` (-1: nothing) is its standard output, and no signal of a terminal or to the
  /// launcher's group comes there.
  ///
  /// @return false where it could not be made. Throws SystemError where no pipe can be had.
  [[nodiscard]] bool start(std::vector<std::string> words, std::string text, int output = -1);
  /// Starts it once more if it is gone, as where all children of this process were ended, or could
  /// not be made.
  void restore();

 private:
  [[nodiscard]] bool is_there() const;

  std::vector<std::string> words_;
  std::string text_;
  int output_ = -1;
  pid_t pid_ = -1;
  internal::UniqueFd alive_;  // closed with this process
};

/// In such a process: its name, and no signal but SIGKILL ends it.
void be_reaper();

}  // namespace chainmail::launch
