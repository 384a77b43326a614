// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What lies below the root of the state:
//
//   jobs/NAME-XXXXXX         a job (job_folder.h)
//   unfinished/NAME-XXXXXX   one that is being made, or removed, of which nobody sees a half
//   ended/NAME-XXXXXX        an empty file for each job that has ended: see ended_jobs.h
//
// Thread-safe.

#pragma once

#include <string>
#include <string_view>

namespace chainmail::launch {

[[nodiscard]] std::string jobs_folder(const std::string& root);
[[nodiscard]] std::string unfinished_folder(const std::string& root);

/// Makes the root and what is below it (0700, whatever the umask) where it is missing. Throws
/// SystemError, also where that is another user's.
void make_job_places(const std::string& root);

/// Has the names of jobs outlast a loss of power, where that can be had.
void sync_jobs(const std::string& root) noexcept;

/// Removes folders of launchers that were killed while they made or removed one, if they are a
/// minute older than `newest`, by the file system's own clock. Never throws.
void remove_unfinished(const std::string& root, const std::string& newest) noexcept;

/// Removes the folder of a job that runs no more, with all that is in it and without following
/// links; nobody sees half of it. Throws SystemError.
void remove_job_folder(const std::string& root, const std::string& folder);

}  // namespace chainmail::launch
