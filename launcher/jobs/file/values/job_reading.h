// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the readers of a job file's parts know of the whole, and the paths that it names. One
// thread.

#pragma once

#include <string>

#include "launcher/jobs/file/job_file.h"
#include "launcher/jobs/file/text/json_text.h"
#include "launcher/jobs/file/text/mistakes.h"

namespace chainmail::launch {

struct JobReading {
  const JobFileSettings& settings;
  std::string folder;    ///< of the job file, absolute
  bool others_can_read;  ///< the job file
  Mistakes& mistakes;
};

/// A path on this machine: "~/x" is below the home directory, "x" beside the job file. One that
/// begins with '$' is a mistake: no variables are expanded in it.
[[nodiscard]] std::string path_in(const JobReading& reading, const JsonNode& at,
                                  const std::string& text);

/// The same of a pattern, which stays as it is where it begins with a variable.
[[nodiscard]] std::string path_pattern_in(const JobReading& reading, const JsonNode& at,
                                          const std::string& pattern);

/// Without '/' at the end, "." and ".."; `path` is no pattern.
[[nodiscard]] std::string normal_path(const std::string& path);

}  // namespace chainmail::launch
