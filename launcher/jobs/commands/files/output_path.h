// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The folders of a job by their ids, and what is in them. A path in one never leads out of it.
// Reads the file system; thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/jobs/folder/job_list.h"

namespace chainmail::launch {

/// The id of the folder of stdout.txt and stderr.txt.
inline constexpr char kStdouterrId[] = "stdouterr";

/// That one first, then outputs, then inputs.
[[nodiscard]] std::vector<JobRecord::Output> folders_of(const FoundJob& job);
/// The path of the one with this id. Throws UsageError with the ids that there are.
[[nodiscard]] std::string folder_of(const FoundJob& job, const std::string& id);

/// Without "." and doubled slashes; empty: the folder itself. Throws UsageError for an absolute
/// path and one with "..". Pure.
[[nodiscard]] std::string checked_path(const std::string& path);

/// Where a checked path in a folder leads to, links resolved. Throws UsageError where that is
/// outside of the folder, and where there is no such file; SystemError where it cannot be looked
/// at.
[[nodiscard]] std::string path_in(const std::string& folder, const std::string& path);

struct FolderEntry {
  std::string name;
  std::string kind;    ///< "file", "folder", "link" or "other"
  std::string target;  ///< of a link
  std::uint64_t bytes = 0;
  std::int64_t modified_ms = 0;  ///< UTC, since 1970
};
/// Of a folder by name, links as such; of anything else itself. Throws SystemError.
[[nodiscard]] std::vector<FolderEntry> entries_at(const std::string& path);

/// The folder that holds nothing but what belongs to a job: up to the part of the path that is its
/// uuid; empty where there is none, or "..". Pure.
[[nodiscard]] std::string uuid_folder_in(const std::string& path, const std::string& uuid);

}  // namespace chainmail::launch
