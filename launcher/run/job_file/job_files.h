// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The files that a job's output goes to: stdout.txt, stderr.txt and execution.log, in the folder
// that its file names or in the job's own, which has links to them otherwise.
//
// One thread.

#pragma once

#include <string>

#include "base/unique_fd.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

class JobFiles {
 public:
  /// Makes `folder` and the files, or goes on with those that are there. Throws SystemError that
  /// names the path.
  JobFiles(const std::string& job_folder, const std::string& folder);

  [[nodiscard]] OutputCopies copies() const noexcept {
    return {out_.get(), error_.get(), log_.get()};
  }
  /// A line with its time, for execution.log.
  void log(const std::string& line) const;
  /// To the disk; empty, or what could not be written and why.
  [[nodiscard]] std::string flush() const;

 private:
  std::string folder_;
  internal::UniqueFd out_;
  internal::UniqueFd error_;
  internal::UniqueFd log_;
};

}  // namespace chainmail::launch
