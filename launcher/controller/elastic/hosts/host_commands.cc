// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/hosts/host_commands.h"

#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "launcher/controller/elastic/hosts/world_report.h"

namespace chainmail::launch {

HostCommands::HostCommands(JobState& job, const membership::WorldMachine& machine,
                           WatchedFolder& folder, std::string hosts_file, std::vector<Host> listed,
                           std::function<void(const std::vector<Host>& hosts)> on_hosts)
    : job_(job),
      machine_(machine),
      folder_(folder),
      hosts_file_(std::move(hosts_file)),
      listed_(std::move(listed)),
      on_hosts_(std::move(on_hosts)) {}

// Nobody may ever ask.
void HostCommands::start() {
  try {
    const std::string& folder = job_.directory.make();
    if (folder.empty()) return;
    socket_ = std::make_unique<ControlSocket>(
        job_.io, folder,
        [this](const std::string& request, const auto& answer) { on_request(request, answer); });
  } catch (const SystemError& error) {
    job_.say("launcher: " + std::string(error.what()) +
             "; 'launcher status' will not find this job");
  }
}

JobAnswer HostCommands::answer_with(std::string error) const {
  return {std::move(error), {}, status_of(machine_, job_, hosts_file_)};
}

void HostCommands::on_request(const std::string& text, const ControlSocket::Answer& answer) {
  std::string error;
  try {
    const std::vector<HostsEdit> edits = checked_edits(request_of(text));
    if (!edits.empty()) {
      const auto words = words_of(edits, hosts_file_, machine_);
      return edit(edits, [this, words, answer](const std::string& failure) {
        JobAnswer done = answer_with(failure);
        if (failure.empty()) done.said = words;
        answer(json_of(done));
      });
    }
  } catch (const std::runtime_error& refusal) {
    error = refusal.what();
  }
  answer(json_of(answer_with(error)));
}

// A status request has none. Throws HostsError.
std::vector<HostsEdit> HostCommands::checked_edits(const JobRequest& request) const {
  std::vector<HostsEdit> edits;
  if (request.verb == JobRequest::Verb::kStatus) return edits;
  if (!refusal_.empty()) throw HostsError(refusal_);
  if (!job_.options.host_discovery.empty()) {
    throw HostsError("the hosts of this job are those that --host-discovery " +
                     job_.options.host_discovery + " prints");
  }
  if (!machine_.has_changes_left()) {
    throw HostsError("no change is left of --max-changes: the hosts of this job stay as they are");
  }
  for (const std::string& host : request.hosts) {
    const bool is_drain = request.verb == JobRequest::Verb::kDrain;
    edits.push_back(is_drain ? removal_of(host) : addition_of(host));
    if (is_drain && is_base(machine_, edits.back().host.name)) {
      throw HostsError(
          "host " + edits.back().host.name +
          " is one of the hosts of -n, which stay, and are tried again when they have failed");
    }
  }
  return edits;
}

// Throws HostsError.
void HostCommands::edit(const std::vector<HostsEdit>& edits,
                        const std::function<void(const std::string& failure)>& on_done) {
  if (!hosts_file_.empty()) {
    const auto change = [edits, where = hosts_file_](const std::string& text) {
      return edited_text(text, edits, where);
    };
    return folder_.edit(change, on_done);
  }
  listed_ = edited_hosts(listed_, edits, "the list of hosts");
  on_hosts_(listed_);
  on_done("");
}

}  // namespace chainmail::launch
