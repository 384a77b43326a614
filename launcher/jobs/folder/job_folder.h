// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The folder of one job, as its supervisor has it:
//
//   lock           locked (fcntl, open file description) as long as the supervisor lives
//   state.json     a JobRecord, replaced whole
//   job.json       the job as it was understood, without secrets;  plan.json: where ranks are
//   events.jsonl   of all attempts
//   stdout.txt stderr.txt execution.log prepare.HOST.txt
//   stop           "none", until somebody asks for the job's end: "stop", or "now" below it. It
//                  is there from the start, since network file systems take half a minute to notice
//                  a file that another machine has made, and a full disk has no room for one
//
// There is no daemon: a lock that is free beside a state that is not final means that the
// supervisor is gone. One thread.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "launcher/job/environment.h"
#include "launcher/job/stop_request.h"
#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

/// $CHAINMAIL_STATE, else $XDG_STATE_HOME/chainmail, else ~/.local/state/chainmail. Throws
/// UsageError where none of them is an absolute path.
[[nodiscard]] std::string state_root(const Environment& variables);

/// Whether, and how, a job is asked to end, as the file in its folder says; kNone where it cannot
/// be read.
[[nodiscard]] StopRequest stop_request_of(const std::string& folder);
/// Asks for it; of two requests the more urgent one stays. `on_written`, if any: when processes of
/// this machine can read a new one, which may take much longer to reach the disk. Throws
/// SystemError.
void request_stop(const std::string& folder, StopRequest request,
                  const std::function<void()>& on_written = nullptr);

class JobFolder {
 public:
  /// Makes ROOT/jobs/NAME-XXXXXX (0700), takes its lock and writes `record`, whose id and uuid are
  /// set here, and where they are empty the launcher (this process), the time of its creation and
  /// the folder of its output (this one). Others see the folder when all of that is there. Throws
  /// UsageError for a name that is none and SystemError that names the path.
  JobFolder(const std::string& root, JobRecord record);
  /// Lets go of the lock, which a process that was forked meanwhile keeps; what has been written
  /// stays.
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  /// As it was given last, also where it could not be written.
  [[nodiscard]] const JobRecord& record() const noexcept { return record_; }

  /// Replaces state.json: written new, fsync, renamed; id, uuid and name stay. On an error (a full
  /// disk) the old one stays whole, and the reason is returned, but each reason only once until a
  /// write has succeeded; the job goes on, and the next write may succeed. For the first state that
  /// is final there is room in reserve. Never throws.
  [[nodiscard]] std::string write(JobRecord record);
  /// Whether the last write() has failed.
  [[nodiscard]] bool is_behind() const noexcept { return !last_error_.empty(); }
  /// Another file of the folder, whole, 0600. Why it could not be written, or nothing. Never
  /// throws.
  [[nodiscard]] std::string write_file(const std::string& name, const std::string& text);

  /// Whether somebody asks for the job's end. Looks at the file system.
  [[nodiscard]] StopRequest stop_asked() const { return stop_request_of(path_); }

  /// The lock's descriptor, close-on-exec; for a fork that is to be the supervisor.
  [[nodiscard]] int lock() const noexcept { return lock_.get(); }

 private:
  void fill(const std::string& hidden);
  [[nodiscard]] std::string write_state();

  std::string root_;
  std::string path_;
  JobRecord record_;
  internal::UniqueFd folder_;
  internal::UniqueFd lock_;
  std::string last_error_;
};

}  // namespace chainmail::launch
