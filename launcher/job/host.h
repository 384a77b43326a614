// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a hostfile, a host list or a scheduler says about one host. Values.

#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace chainmail::launch {

struct Host {
  std::string name;  ///< as written, never shortened and never resolved
  int slots = 1;
  bool has_slots = false;  ///< a count was written, or the host named more than once
  bool all_cores =
      false;  ///< "n1:*": as many slots as the host has cores; `slots` is not known yet
  std::optional<int> max_slots;
  std::string user;  ///< empty: whatever the remote shell's configuration says
  std::optional<int> port;
  /// What the scheduler lets this job use here, where `slots` is not that number already.
  std::optional<int> granted;
  /// Processors that the scheduler gives this job here, which may confine nobody to them.
  std::optional<int> processors;
  /// GPUs of the job here, where its starter must be told their number.
  std::optional<int> gpus;
  /// The component of a heterogeneous job that the host belongs to.
  std::optional<int> component;
  /// Numbers of the slots that --include or --exclude left, where these are not all.
  std::vector<int> chosen_slots;
};

/// Whose job the launcher runs in. Its own starter reaches the hosts where ssh may not. to_string()
/// has their names in this order.
enum class Scheduler { kNone, kGridEngine, kSlurm, kPbs, kLsf, kSageMaker, kAzureBatch };

struct HostSet {
  std::string source;  ///< for people: "hostfile hosts", "host list n1:2,n2:2"
  std::vector<Host> hosts;
  Scheduler scheduler = Scheduler::kNone;  ///< also where the user named the hosts
  bool takes_turns = false;                ///< the scheduler numbers tasks across the hosts in turn
  std::vector<std::string> notes;          ///< what a user should know about the choice
  std::string file;                        ///< that they stand in; empty: none
  std::string text;                        ///< what it said, or --host-discovery
  bool is_systems = false;  ///< `file` is kept by root, for all jobs: nothing is written beside it
  /// Files that say that hosts are prepared, which could not be made.
  std::set<std::string> unmade_files;

  /// The file that a job may have for itself, with what it writes beside it; empty: none.
  [[nodiscard]] std::string own_file() const { return is_systems ? "" : file; }
};

}  // namespace chainmail::launch
