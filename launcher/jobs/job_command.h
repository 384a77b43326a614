// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher status`, `add` and `drain`: a user's words to a job that runs on this machine.
//
// The main thread's.

#pragma once

#include <optional>
#include <span>
#include <string>

#include "launcher/jobs/job_request.h"

namespace chainmail::launch {

struct JobCommand {
  JobRequest request;
  std::string job;  ///< the launcher's pid, or the hosts file; empty: all jobs
  bool is_json = false;
};

/// Nothing where the first word is no such command; a program of that name is ./add. Throws
/// UsageError.
[[nodiscard]] std::optional<JobCommand> parse_job_command(std::span<const std::string> arguments);

/// Asks the job, or all of them; what to print. Throws UsageError where there is no such job and
/// HostsError where it refuses.
[[nodiscard]] std::string run_job_command(const JobCommand& command);

}  // namespace chainmail::launch
