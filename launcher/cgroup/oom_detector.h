// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Why a rank got a SIGKILL that the launcher did not send: the kernel's out-of-memory killer leaves
// nothing but counters, of the process's control group (v1 or v2) and of the whole machine.
//
// The kernel forgets a v1 group when its process ends, so look() has to come before. Not
// thread-safe.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "launcher/cgroup/control_group.h"

namespace chainmail::launch {

struct KillReport {
  bool is_out_of_memory = false;  ///< the kernel's out-of-memory killer, for certain
  std::string detail;             ///< what is known, for people
};

class OomDetector {
 public:
  OomDetector();
  /// Takes down the counters of this process, in whose control group ranks begin.
  void look_at_own_group();
  /// A rank that has just been started: its counters are those of look_at_own_group(), which is
  /// quicker than look() for every one of many.
  void look_at_start_of(pid_t pid) { ranks_[pid] = own_; }
  /// Takes down the counters of one rank; now and then while it lives.
  void look(pid_t pid);
  /// The same of the machine.
  void look_at_machine();
  /// Of a rank that got a SIGKILL from somebody else; `peak_kib` is what it used at most.
  [[nodiscard]] KillReport explain(pid_t pid, std::int64_t peak_kib) const;
  void forget(pid_t pid) { ranks_.erase(pid); }

 private:
  struct Seen {
    MemoryGroup group;
    std::int64_t kills = 0;
  };

  [[nodiscard]] Seen counters_of(const std::string& process);

  std::string mounts_;
  std::string known_file_;  // ranks are mostly in one group: what look() has read, what it meant
  MemoryGroup known_group_;
  Seen own_;
  std::map<pid_t, Seen> ranks_;
  std::int64_t machine_kills_ = 0;
  std::int64_t available_kib_ = 0;
  std::int64_t total_kib_ = 0;
};

}  // namespace chainmail::launch
