// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/hosts/world_report.h"

#include <unistd.h>

#include <filesystem>

namespace chainmail::launch {
namespace {

using membership::HostId;
using membership::HostTable;
using membership::WorldMachine;
using Member = WorldMachine::Member;

std::string words_of(WorldMachine::Phase phase) {
  switch (phase) {
    case WorldMachine::Phase::kWaiting:
      return "waits for ranks";
    case WorldMachine::Phase::kRunning:
      return "runs";
    case WorldMachine::Phase::kHolding:
    case WorldMachine::Phase::kCollecting:
      return "changes";
    case WorldMachine::Phase::kSaving:
      return "saves its state to end";
    case WorldMachine::Phase::kEnded:
      break;
  }
  return "ends";
}

std::string words_of(const HostTable::Host& host) {
  if (host.gate == HostTable::Gate::kRefused) return "refused until its line goes and comes back";
  if (host.is_cooling) return "left alone after " + std::to_string(host.failures) + " failures";
  if (host.gate == HostTable::Gate::kPreparing) return "is being prepared";
  if (host.is_leaving) return "about to end";
  if (host.base_slots != 0) return "of -n";
  return host.file_slots != 0 ? "added" : "drained";
}

// `may_change`: it can be taken in or drained.
std::string words_of(const Member& member, const membership::World& world, bool may_change) {
  std::string words = "member " + std::to_string(member.id);
  const auto rank = world.rank_of(member.id);
  if (member.is_stopped) return words + " is stopped";
  switch (member.status) {
    case Member::Status::kStarting:
      return words + " starts";
    case Member::Status::kReady:
      return words + " waits";
    case Member::Status::kInWorld:
      words += rank ? " is rank " + std::to_string(*rank) : " is in the world before";
      return words + (!member.is_draining ? "" : may_change ? ", to leave" : ", stays");
    case Member::Status::kLeaving:
      return words + " leaves";
    case Member::Status::kEnding:
      break;
  }
  return words + " is ended";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

/// Null where the job has never heard of it.
const HostTable::Host* find(const WorldMachine& machine, const std::string& name) {
  for (HostId id = 0; id < machine.hosts().size(); ++id) {
    if (machine.hosts()[id].address == name) return &machine.hosts()[id];
  }
  return nullptr;
}

}  // namespace

JobStatus status_of(const WorldMachine& machine, const JobState& job,
                    const std::string& hosts_file) {
  JobStatus status;
  status.pid = getpid();
  status.id = job.id;
  status.program = job.options.program;
  if (!hosts_file.empty()) status.hosts_file = absolute(hosts_file);
  status.sizes = job.options.elastic.sizes_text();
  status.state = words_of(machine.phase());
  status.world = machine.world().generation;
  status.size = machine.world().members.size();
  status.step = machine.step();
  for (HostId id = 0; id < machine.hosts().size(); ++id) {
    const HostTable::Host& host = machine.hosts()[id];
    HostStatus line{host.address, host.slots(), words_of(host), {}};
    for (const Member& member : machine.members()) {
      if (member.host == id) {
        line.members.push_back(words_of(member, machine.world(), machine.has_changes_left()));
      }
    }
    status.hosts.push_back(std::move(line));
  }
  return status;
}

bool is_base(const WorldMachine& machine, const std::string& host) {
  const HostTable::Host* const found = find(machine, host);
  return found != nullptr && found->base_slots != 0;
}

std::vector<std::string> words_of(const std::vector<HostsEdit>& edits,
                                  const std::string& hosts_file, const WorldMachine& machine) {
  const std::string where = hosts_file.empty() ? "the job's hosts" : hosts_file;
  std::vector<std::string> lines;
  for (const HostsEdit& edit : edits) {
    const std::string slots = std::to_string(edit.host.slots);
    const HostTable::Host* const now = find(machine, edit.host.name);
    const bool has_more = now != nullptr && static_cast<int>(now->slots()) > edit.host.slots;
    lines.push_back(edit.removes
                        ? edit.host.name + " is out of " + where + "; its ranks leave after a step"
                        : edit.host.name + " is in " + where + " with " + slots +
                              (edit.host.slots == 1 ? " slot" : " slots") +
                              (has_more ? "; ranks beyond that leave after a step"
                                        : "; ranks there join when they are ready"));
  }
  return lines;
}

}  // namespace chainmail::launch
