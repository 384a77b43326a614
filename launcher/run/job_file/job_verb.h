// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher job check|convert|schema|export`: job files, without running them.
//
// The main thread's.

#pragma once

#include <optional>
#include <span>
#include <string>

#include "launcher/job/job_file_options.h"
#include "launcher/jobs/file/job_file.h"

namespace chainmail::launch {

/// What the command line and this process's environment add to a job file.
[[nodiscard]] JobFileSettings job_file_settings(const JobFileOptions& typed);

/// What `launcher job ...` prints; nothing where the first word is not "job". Throws UsageError,
/// also for mistakes in the file.
[[nodiscard]] std::optional<std::string> job_verb_text(std::span<const std::string> arguments);

}  // namespace chainmail::launch
