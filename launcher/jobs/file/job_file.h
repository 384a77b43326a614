// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Job files in both forms: Chainmail's own, and Azure Batch AI's (2018-05-01, 2018-03-01,
// 2017-09-01-preview). Strict: whatever is not understood has an error, or in the old form a
// warning, with its place in the file. docs/jobs.md and docs/coming_from/batch_ai.md have every
// key.
//
// Thread-safe.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/job/environment.h"
#include "launcher/job/options.h"
#include "launcher/jobs/file/job_spec.h"

namespace chainmail::launch {

/// What the command line adds to a job file.
struct JobFileSettings {
  std::optional<std::string> name;            ///< --name
  std::vector<std::string> sets;              ///< --set, "limits.time=1h"
  std::map<std::string, std::string> mounts;  ///< --mount, NAME to absolute folder
  std::vector<std::string> secrets;           ///< --secret, "NAME" or "NAME=@FILE"
  Environment environment;                    ///< the launcher's own
  std::string mounts_file;                    ///< ~/.config/chainmail/mounts.json; may be missing
  /// Whether names without a value (an environment of null, a secret of null) and mounts that are
  /// not mapped are errors. Not where a file is only converted.
  bool is_complete = true;
};

/// The user's mistake in a job file: exit code 2. One line for each mistake, all of them:
/// "job.json:12:7: /properties/nodeCont: unknown key, did you mean 'nodeCount'?"
class JobFileError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Reads and checks all that can be checked without a host. Throws JobFileError, and UsageError for
/// a file that cannot be read.
[[nodiscard]] JobSpec read_job_file(const std::string& path, const JobFileSettings& settings);

/// The same of a text that is at hand; `path` is what messages call it.
[[nodiscard]] JobSpec parse_job_file(const std::string& text, const std::string& path,
                                     const JobFileSettings& settings);

/// The job in the modern form, for people: without secrets' values, which become null.
[[nodiscard]] std::string modern_text(const JobSpec& spec);

/// What is kept of a job in its folder: one line; secrets are {"redacted":true}.
[[nodiscard]] std::string normalised_json(const JobSpec& spec);

/// The modern form's JSON Schema (2020-12).
[[nodiscard]] std::string job_schema();

/// A script or manifest that runs the job under another system, which nobody submits: "slurm",
/// "mpijob", "trainjob" or "jobset". Throws UsageError for another target, and for what it cannot
/// do.
[[nodiscard]] std::string export_job(const JobSpec& spec, const std::string& target);

}  // namespace chainmail::launch
