// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Finds out whether another job saves in a run's folder at the same time: each would take what the
// other has under way for leftovers of a crash, remove the other's older generations and load its
// newest.
//
// One process per folder has one. Local. Errors are CheckpointError.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace chainmail::internal {

class FolderWatch {
 public:
  /// Knows all that is in the folder now: jobs that have ended may have left it.
  explicit FolderWatch(std::string run_folder);

  /// Once more.
  void know_all();
  /// Before a save.
  /// @throws CheckpointError  names what has come since, or is being written, and is not this
  ///                          job's; once, so that the next save may go on
  void expect_no_other();
  /// What this job writes from now on.
  void add_own(std::int64_t iteration, std::uint64_t id);

 private:
  std::string find_other() const;

  std::string run_folder_;
  std::set<std::uint64_t> known_;                 ///< generations, by the numbers of their saves
  std::set<std::string> own_;                     ///< folders that this job may have under way
  std::map<std::string, std::string> leftovers_;  ///< of others, and what they looked like
};

}  // namespace chainmail::internal
