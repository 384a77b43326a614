// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders that launchers and agents make for a job. Names of agents' begin with the agent's marker,
// so that others can remove them when the agent could not. Those of jobs that were ended as a
// whole, by a scheduler that kills all processes at once or with the machine, are left to the next
// job.

#pragma once

#include <string>
#include <vector>

namespace chainmail::launch {

/// What an agent's is for, between its marker and a tag.
inline constexpr char kMpiFolder[] = ".mpi.";
inline constexpr char kPreloadFolder[] = ".job.";
inline constexpr char kTempFolder[] = ".temp.";

/// Makes one (0700) below `parent`, which is a folder that has passed trusted_folder(). Empty, and
/// errno set, where it cannot be made.
[[nodiscard]] std::string make_agent_folder(const std::string& parent, const std::string& marker,
                                            const std::string& kind);

/// One of those for as long as the object lives, where it can be had. One thread.
class AgentFolder {
 public:
  /// Throws SystemError that says of every place why it cannot be there.
  AgentFolder(const std::string& marker, const std::string& kind);
  ~AgentFolder();
  AgentFolder(const AgentFolder&) = delete;
  AgentFolder& operator=(const AgentFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Removes a folder with all that is in it, as far as that goes; nothing for an empty path.
void remove_folder(const std::string& path) noexcept;

/// Where they may lie: scratch_folders(), and the home directory where nothing else takes them.
[[nodiscard]] std::vector<std::string> agent_folder_parents();

/// Removes what agents with these markers have left on this machine, of this user's and where
/// nobody else could replace it (trusted_folder()). Never throws.
void remove_agent_folders(const std::vector<std::string>& markers) noexcept;

/// Removes this user's folders of ours in the places where launchers and agents make them, if the
/// processes they belong to are gone. One process at a time per place; others leave it alone. Never
/// throws.
void remove_stale_folders() noexcept;

/// The same in one folder.
void remove_stale_folders(const std::string& parent) noexcept;

}  // namespace chainmail::launch
