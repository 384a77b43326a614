// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job file's "options": options of the launcher's command line that have no key of their own.
// Thread-safe.

#pragma once

#include <vector>

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

/// Each is tried, so that a wrong value is a mistake here. One that says what a key of the file
/// says, or what only a person at the command line can want, is one too.
[[nodiscard]] std::vector<JobSpec::Option> options_in(const JobReading& reading,
                                                      const JsonNode& node);

}  // namespace chainmail::launch
