// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The gate before a host's first rank: --prepare, a command that an agent of its own runs there, or
// a file prepare_data_success_<host> beside the hosts file, which the launcher makes when the
// command has ended with 0, and anybody else may make before.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/membership/world/world_events.h"
#include "launcher/controller/elastic/world_hosts.h"
#include "launcher/controller/starting/agent_starts.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/files/watched_folder.h"
#include "launcher/output/targets/host_files.h"

namespace chainmail::launch {

/// What became of a host whose agent for --prepare cannot be had, or is lost: ranks that run there
/// have one of their own, and go on, while it is prepared anew after a while.
[[nodiscard]] membership::WorldEvent lost_in_gate(membership::HostId host, const std::string& cause,
                                                  bool has_ranks);

class PrepareGate {
 public:
  struct Callbacks {
    /// What to tell an agent to start, but for the ranks.
    std::function<StartOrder(std::uint32_t node)> make_order;
    std::function<void(const membership::PrepareEnded& event)> on_ended;
    /// Its agent cannot be had, or is lost.
    std::function<void(membership::HostId host, const std::string& cause)> on_host_lost;
    /// Has a success file made; false where none is.
    std::function<bool(const std::string& name)> make_file;
    /// Whether that file could not be made when its host was prepared.
    std::function<bool(const std::string& name)> is_unmade;
    /// A line for people.
    std::function<void(const std::string& words)> note;
  };

  PrepareGate(JobState& job, AgentStarts& starts, WorldHosts& hosts, WatchedFolder& folder,
              std::string folder_name, Callbacks callbacks);

  /// Begins, or ends, as the machine asks.
  void on(const membership::Prepare& action);

  /// Nobody needs it any more.
  void stop();
  /// Outside of the loop: waits for what was printed to be on the disk. Why it is not; empty: it
  /// is.
  [[nodiscard]] std::string finish();
  /// Whose preparation runs.
  [[nodiscard]] std::vector<membership::HostId> hosts() const;

  // What is known of success files.
  void on_there(const std::string& name);
  void on_missing(const std::string& name);

  // What is known of agents.
  void on_hello();
  /// False for a frame that is not the gate's.
  bool on_frame(std::uint32_t node, const internal::Frame& frame);
  /// False for a node that is not the gate's.
  bool on_agent_lost(std::uint32_t node, const std::string& cause);

 private:
  struct Run {
    membership::HostId host = 0;
    bool is_ordered = false;
    LastLines last_lines;
    std::unique_ptr<HostFiles> files;  // of this host alone
  };

  [[nodiscard]] std::string name_of(membership::HostId host) const;
  [[nodiscard]] std::string path_of(membership::HostId host) const;
  void let_go(Run& run);
  void begin_run(membership::HostId host);
  void end_runs(membership::HostId host);
  void end(membership::HostId host, bool has_succeeded, const std::string& cause);
  void on_output(Run& run, std::uint32_t node, const internal::Frame& frame);
  void make_room(std::uint32_t node);
  void on_exited(std::uint32_t node, const RankExit& exit);
  void on_start_failed(std::uint32_t node, const internal::Frame& frame);
  void lose(std::uint32_t node, const std::string& cause);

  JobState& job_;
  AgentStarts& starts_;
  WorldHosts& hosts_;
  WatchedFolder& folder_;
  std::string folder_name_;
  Callbacks callbacks_;
  std::map<std::string, membership::HostId> awaited_;    // by name of the file
  std::map<std::uint32_t, Run> runs_;                    // by node
  std::vector<std::unique_ptr<HostFiles>> ended_files_;  // which may still be written
};

}  // namespace chainmail::launch
