// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs as anybody of the same user finds them, on any machine that sees the folder. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

struct FoundJob {
  std::string folder;
  JobRecord record;  ///< kLost where its supervisor is gone, with the reason
};

/// Newest first. Folders without a readable state are left out; those that nobody has locked are
/// named in `unreadable`, one line each: "mnist-7f3k2c: why". `with_ended`: also those that have
/// ended; lost ones are there in any case, until somebody removes them. Throws SystemError where
/// the folder of all jobs cannot be read.
[[nodiscard]] std::vector<FoundJob> list_jobs(const std::string& root, bool with_ended,
                                              std::vector<std::string>& unreadable);

/// The one that `name` means: an id, a job's name (its latest), the unique beginning of an id, or a
/// folder, which has a '/' in it. Throws UsageError with the three that look most like it, and
/// where a beginning is that of several; SystemError where its state cannot be read.
[[nodiscard]] FoundJob find_job(const std::string& root, const std::string& name);

/// The job of a folder as it is now. Throws SystemError.
[[nodiscard]] FoundJob read_job(const std::string& folder);

/// The folder of a job without a readable state that nobody has locked, by its whole name; empty
/// where there is none.
[[nodiscard]] std::string unreadable_folder(const std::string& root, const std::string& name);

}  // namespace chainmail::launch
