// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Job files in Chainmail's own form. One thread.

#pragma once

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

/// What the tree says, and a mistake for each thing that it cannot say. Of the spec, `file`,
/// `sha256`, `is_batch_ai` and `warnings` are left to the caller.
[[nodiscard]] JobSpec read_modern_form(const JobReading& reading, const JsonNode& root);

/// Letters, digits, '-', '_', '.'; neither '-' nor '.' first; 1 to 64.
[[nodiscard]] bool is_job_name(const std::string& name);

/// A name for the job of a file without one: that of the file.
[[nodiscard]] std::string job_name_of_file(const std::string& path);

}  // namespace chainmail::launch
