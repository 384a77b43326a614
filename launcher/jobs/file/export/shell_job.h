// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job as a script for sh, which other systems run: what the launcher does for a job file, as far
// as a script can. No value of a secret is in it. Pure functions, thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/jobs/file/job_spec.h"

namespace chainmail::launch {

struct ShellJobTarget {
  std::string name;        ///< "slurm", for messages
  std::string run_id;      ///< for sh, another one for each run: "$SLURM_JOB_ID"
  std::string node_index;  ///< for sh, of the ranks' host: "$NODE_RANK"
  bool has_launcher = true;
  bool tries_again = false;     ///< the target itself, after a failure; so the launcher does not
  bool has_late_hosts = false;  ///< the script may begin before all hosts can be reached
};

struct JobSize {
  std::uint32_t hosts = 0;
  std::uint32_t per_host = 0;
  std::uint32_t ranks = 0;
};

/// Throws UsageError if the job does not say it: other systems want numbers.
[[nodiscard]] JobSize size_of(const JobSpec& spec);

/// Throws UsageError for what has no counterpart there.
void check_export(const JobSpec& spec, const ShellJobTarget& target);

/// Variables of the job, folders and links; then, in `directory`, with `exec` in front, the
/// launcher with its options, or the program itself.
[[nodiscard]] std::string shell_job(const JobSpec& spec, const ShellJobTarget& target);

/// The same, up to the preparation, which it runs.
[[nodiscard]] std::string shell_preparation(const JobSpec& spec, const ShellJobTarget& target);

/// Variables that whoever starts the job has to give: secrets, and those of null.
[[nodiscard]] std::vector<std::string> variables_from_outside(const JobSpec& spec);

}  // namespace chainmail::launch
