// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the user of an elastic job says of its hosts while it runs: `launcher status`, `add` and
// `drain`. Changes go into the hosts file, which stays the truth; without one, into the list that
// the job began with.
//
// One thread, the io_context's.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/files/watched_folder.h"
#include "launcher/hosts/hosts_edit.h"
#include "launcher/job/host.h"
#include "launcher/jobs/control_socket.h"
#include "launcher/jobs/job_request.h"

namespace chainmail::launch {

class HostCommands {
 public:
  /// `hosts_file` may be empty: `on_hosts` is called with what `listed` has become. All of them
  /// outlive this.
  HostCommands(JobState& job, const membership::WorldMachine& machine, WatchedFolder& folder,
               std::string hosts_file, std::vector<Host> listed,
               std::function<void(const std::vector<Host>& hosts)> on_hosts);

  /// Listens in the job's folder; says so where it cannot.
  void start();
  /// Hosts do not change any more; the first reason counts.
  void refuse(const std::string& why) {
    if (refusal_.empty()) refusal_ = why;
  }

 private:
  void on_request(const std::string& text, const ControlSocket::Answer& answer);
  void edit(const std::vector<HostsEdit>& edits,
            const std::function<void(const std::string& failure)>& on_done);
  [[nodiscard]] std::vector<HostsEdit> checked_edits(const JobRequest& request) const;
  [[nodiscard]] JobAnswer answer_with(std::string error) const;

  JobState& job_;
  const membership::WorldMachine& machine_;
  WatchedFolder& folder_;
  const std::string hosts_file_;
  std::vector<Host> listed_;
  std::function<void(const std::vector<Host>& hosts)> on_hosts_;
  std::unique_ptr<ControlSocket> socket_;
  std::string refusal_;
};

}  // namespace chainmail::launch
