// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// events.jsonl: in the folder of --output, where it stays, or in the job's own, which is made only
// for a job that lives for a while: nobody could follow a shorter one, and it should cost nothing.
//
// One thread, the io_context's.

#pragma once

#include <memory>
#include <string>

#include "launcher/output/job_directory.h"
#include "launcher/output/line_writer.h"

namespace chainmail::launch {

class EventFile {
 public:
  /// `output_dir` may be empty. `goes_on`: an earlier world of this job has written already. Throws
  /// SystemError where a file in `output_dir` cannot be written.
  EventFile(const std::string& output_dir, JobDirectory& directory, bool goes_on);

  void write(std::string line);
  /// With each heartbeat.
  void beat();
  /// Why lines that were to be kept are lost; empty when none is.
  std::string finish();

 private:
  JobDirectory& directory_;
  const bool is_kept_;
  const bool goes_on_;
  bool has_beaten_ = false;
  bool is_given_up_ = false;
  std::string waiting_;  // lines, until there is a file
  std::unique_ptr<LineWriter> writer_;
};

}  // namespace chainmail::launch
