// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which control group a process is in, of v1 or v2. Pure functions.

#pragma once

#include <string>
#include <string_view>

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

}  // namespace chainmail::launch
