// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Control groups: one (v2) for the ranks of one agent and all that they start, in whatever session,
// which the kernel ends as one; and which group (v1 or v2) accounts for a process's memory. The
// former only where this process's own group is ours to divide; nothing depends on it.
//
// One thread.

#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace chainmail::launch {

/// Where a process's memory is accounted: the folder of its memory control group.
struct MemoryGroup {
  std::string folder;       ///< "/sys/fs/cgroup/memory/job"; empty: none is seen here
  std::string name;         ///< "/job"
  std::string mount;        ///< "/sys/fs/cgroup/memory"
  bool is_unified = false;  ///< v2
};

/// From /proc/PID/cgroup and /proc/self/mountinfo. Pure.
[[nodiscard]] MemoryGroup find_memory_group(std::string_view cgroup_file,
                                            std::string_view mount_file);

class ControlGroup {
 public:
  ControlGroup() = default;  ///< none
  /// Below the group of this process, where it is the user's, or delegated to him, and hands no
  /// controllers on; else none. Named after this process, see owner_tag.h. It and all that it forks
  /// look after the group from now on, until they execute another program.
  [[nodiscard]] static ControlGroup make_below_own();

  [[nodiscard]] bool exists() const noexcept { return !path_.empty(); }
  /// Its folder (O_PATH), for fork_into_group(); -1: none.
  [[nodiscard]] int folder() const noexcept { return folder_.get(); }
  /// SIGKILL to all processes in it.
  void kill_all() const noexcept;
  /// Once it is empty, with the groups that its processes made below; waits for that for some 100
  /// ms.
  void remove() const noexcept;

 private:
  std::string path_;
  internal::UniqueFd folder_;
  internal::UniqueFd lock_;  ///< held by all who look after it
};

/// Ends and removes groups below this process's own whose owner is gone and that nobody else looks
/// after, and removes old empty ones whose owner cannot be seen from here.
void end_stale_groups() noexcept;

}  // namespace chainmail::launch
