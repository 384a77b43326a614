// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which hosts an elastic job shall have, whoever says so while it runs:
//
//   WatchedFolder   the hosts file, and the success files beside it
//   HostDiscovery   a program in place of the file
//   HostCommands    what its user says of the hosts
//
// One thread, the io_context's.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "launcher/controller/elastic/hosts/host_commands.h"
#include "launcher/controller/elastic/hosts/host_discovery.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/files/watched_folder.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

class HostsWatch {
 public:
  struct Callbacks {
    /// What can be read with certainty, and is not what it was.
    std::function<void(const std::vector<Host>& hosts)> on_hosts;
    /// Of files that were asked for in folder().
    std::function<void(const std::string& name)> on_there;
    std::function<void(const std::string& name)> on_missing;
  };

  /// `hosts`: of the first reading. `machine` says what has become of them.
  HostsWatch(JobState& job, const membership::WorldMachine& machine, const HostSet& hosts,
             Callbacks callbacks);

  void start();
  /// Hosts do not change any more.
  void stop();
  /// Says why, to who wants to change them.
  void refuse_commands(const std::string& why) { commands_.refuse(why); }
  /// As they were read last, with the text.
  [[nodiscard]] const HostSet& latest() const noexcept { return latest_; }
  /// Makes a success file, if one may stand beside the hosts file; false otherwise: each job has
  /// every host prepared then.
  bool make_file(const std::string& name);
  /// Whether a success file is missing only because it could not be made.
  [[nodiscard]] bool is_unmade(const std::string& name) const {
    return latest_.unmade_files.contains(name);
  }
  /// Where success files are.
  [[nodiscard]] WatchedFolder& folder() noexcept { return folder_; }
  [[nodiscard]] const std::string& folder_name() const noexcept { return folder_name_; }

 private:
  void on_text(const std::string& text, const std::string& where);
  void take(const std::vector<Host>& hosts);

  JobState& job_;
  Callbacks callbacks_;
  HostSet latest_;
  const std::string file_;  ///< empty: they stand in none
  const std::string folder_name_;
  WatchedFolder folder_;
  std::unique_ptr<HostDiscovery> discovery_;
  HostCommands commands_;
  bool is_over_ = false;
};

}  // namespace chainmail::launch
