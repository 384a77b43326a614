// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A folder for what a job has to tell while it runs: TMPDIR/chainmail-job.<pid>.<tag>.XXXXXX
// (0700), so that whoever knows the launcher's pid finds it. It goes with the launcher, also when
// that is killed: a child waits for nothing else. Where that was killed as well, or the machine
// switched off, the user's next launcher there removes it.
//
// The main thread's.

#pragma once

#include <string>

#include "launcher/process/reaper.h"

namespace chainmail::launch {

class JobDirectory {
 public:
  JobDirectory() = default;
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  /// Makes it unless it is there; its path, or an empty one where none can be made. Throws
  /// SystemError where no pipe can be had.
  const std::string& make();
  /// Where all children of this process were ended, what removes the folder was among them.
  void renew() {
    if (!path_.empty()) remover_.restore();
  }
  /// Where the folders of all jobs on this machine are, and how their names begin; empty where
  /// nobody but this user must be able to replace them, and there is no such folder.
  [[nodiscard]] static std::string parent();
  static constexpr const char* kPrefix = "chainmail-job.";

 private:
  bool has_tried_ = false;
  std::string path_;
  Reaper remover_;
};

/// The child: removes what is left behind, reads a path from its standard input up to the end, then
/// removes what is there.
void outlive_launcher();

}  // namespace chainmail::launch
