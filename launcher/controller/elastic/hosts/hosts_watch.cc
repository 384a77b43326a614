// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/hosts/hosts_watch.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "launcher/command_line/parse.h"
#include "launcher/hosts/watched_hosts.h"

namespace chainmail::launch {
namespace {

constexpr std::chrono::milliseconds kDiscoveryInterval{5000};

std::string folder_of(const std::string& hosts_file) {
  const std::string folder = std::filesystem::path(hosts_file).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string name_in_folder(const std::string& hosts_file) {
  return std::filesystem::path(hosts_file).filename().string();
}

}  // namespace

HostsWatch::HostsWatch(JobState& job, const membership::WorldMachine& machine, const HostSet& hosts,
                       Callbacks callbacks)
    : job_(job),
      callbacks_(std::move(callbacks)),
      latest_(hosts),
      file_(hosts.file),
      folder_name_(folder_of(file_)),
      folder_(job.io, folder_name_, name_in_folder(file_), hosts.text,
              {.on_text = [this](const auto& text) { on_text(text, file_); },
               .on_unreadable =
                   [this](const auto& why) {
                     job_.say("launcher: " + why + "; the job goes on with the hosts it has");
                   },
               .on_there = [this](const auto& name) { callbacks_.on_there(name); },
               .on_missing = [this](const auto& name) { callbacks_.on_missing(name); },
               .on_not_made =
                   [this](const auto& name, const auto& why) {
                     latest_.unmade_files.insert(name);
                     job_.say("launcher: " + why + "; the next job prepares that host again");
                   }}),
      commands_(job, machine, folder_, file_, hosts.hosts, [this](const auto& now) { take(now); }) {
  if (hosts.is_systems) {
    commands_.refuse("the hosts of this job are those of " + file_ +
                     ", which the cluster keeps up to date: add or end machines of the cluster");
  }
  if (job.options.host_discovery.empty()) return;
  discovery_ = std::make_unique<HostDiscovery>(
      job.io, split_command(job.options.host_discovery, "--host-discovery"),
      job.options.elastic.discovery_interval.value_or(kDiscoveryInterval), hosts.text,
      HostDiscovery::Callbacks{
          .on_text = [this](const auto& text) { on_text(text, "output of --host-discovery"); },
          .on_failure =
              [this](const auto& why) {
                job_.say("launcher: " + why + "; the hosts stay as they were");
              }});
}

void HostsWatch::start() {
  if (discovery_) discovery_->start();
  commands_.start();
}

// A machine that comes under the name of one that has gone must not pass for prepared.
bool HostsWatch::make_file(const std::string& name) {
  if (latest_.is_systems) return false;
  folder_.make(name);
  return true;
}

void HostsWatch::stop() {
  is_over_ = true;
  if (discovery_) discovery_->stop();
  commands_.refuse("the job is ending");
}

// Somebody edits it, and may not have finished.
void HostsWatch::on_text(const std::string& text, const std::string& where) {
  if (is_over_) return;
  try {
    const std::vector<Host> hosts = parse_watched_hosts(text, where);
    if (!hosts.empty()) latest_.text = text;
    take(hosts);
  } catch (const HostsError& error) {
    job_.events.record("hosts_file_ignored", {{"cause", error.what()}});
    job_.say("launcher: " + std::string(error.what()) +
             "; it is ignored, the hosts stay as they were");
  }
}

// Editors leave an empty file for a moment, and an empty disk for longer: what follows it counts.
void HostsWatch::take(const std::vector<Host>& hosts) {
  if (is_over_) return;
  if (!hosts.empty()) latest_.hosts = hosts;
  callbacks_.on_hosts(hosts);
}

}  // namespace chainmail::launch
