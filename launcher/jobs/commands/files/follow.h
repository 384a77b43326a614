// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files of a job copied to this process's streams, once or as they grow until the job has ended.
// Little is in memory, whatever their size and however slow their reader. Not thread-safe.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/jobs/commands/files/growing_file.h"
#include "launcher/jobs/folder/job_list.h"

namespace chainmail::launch {

struct FollowedFile {
  GrowingFile file;
  int out = 1;          ///< standard output or standard error
  std::string heading;  ///< printed where other files' bytes came before; empty: none
};

class Follower {
 public:
  /// `add_files` is called before each look, and may add to the files: those of hosts that come
  /// later.
  using AddFiles = std::function<void(std::vector<FollowedFile>& files)>;
  explicit Follower(std::vector<FollowedFile> files, AddFiles add_files = {});

  /// What there is now. Throws SystemError.
  void copy();
  /// What there is and what comes, to the last byte of the job, which is returned as it has ended.
  /// Throws SystemError; where nobody reads any more this process ends with SIGPIPE.
  [[nodiscard]] FoundJob follow(const FoundJob& job);

  [[nodiscard]] const std::vector<FollowedFile>& files() const noexcept { return files_; }

 private:
  bool copy_round();

  std::vector<FollowedFile> files_;
  AddFiles add_files_;
  std::size_t last_ = 0;  // whose bytes came last; 1 is the first file
};

}  // namespace chainmail::launch
