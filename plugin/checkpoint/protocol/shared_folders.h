// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which ranks see the same folder behind a path: all of them on a network file system, those of one
// node otherwise.

#pragma once

#include <string>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/checkpoint/store/file_system.h"

namespace chainmail::internal {

/// The ranks that see this rank's folder, itself among them, in order. The first one does what must
/// be done once per folder.
struct FolderMembers {
  std::vector<int> ranks;
  int rank = 0;  ///< this one
  [[nodiscard]] bool is_leader() const { return ranks.front() == rank; }
  [[nodiscard]] std::size_t position() const;  ///< of this rank in `ranks`
};

/// Makes the folder and finds out, by a file of every rank that the others look for. Collective.
/// @throws CheckpointError  on all ranks: some rank cannot write to it
[[nodiscard]] FolderMembers find_folder_members(Communicator& communicator, FileSystem& files,
                                                const std::string& folder);

/// Throws the same CheckpointError on all ranks when `error` is not empty on some: `what`, then the
/// rank, its host and its error. Collective.
void agree_on_success(Communicator& communicator, const std::string& what,
                      const std::string& error);

/// Adds one to a line of problems; an empty one is none.
inline void add_problem(std::string& problems, const std::string& problem) {
  if (!problem.empty()) problems += (problems.empty() ? "" : "; ") + problem;
}

/// What `work` throws, as text; empty when it returns.
template <typename Work>
[[nodiscard]] std::string error_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what()[0] == '\0' ? "unknown error" : error.what();
  }
  return "";
}

}  // namespace chainmail::internal
