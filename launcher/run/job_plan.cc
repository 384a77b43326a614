// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_plan.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <vector>

#include "launcher/allocation/job_hosts.h"
#include "launcher/command_line/parse.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/hosts/watched_hosts.h"
#include "launcher/job/environment.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

// The hosts of all programs; those of the first go to programs that name none.
Placement place(const Options& options, HostSet& all) {
  const MapBy map_by =
      options.map_by.value_or(all.takes_turns && !options.rank_by ? MapBy::kNode : MapBy::kSlot);
  const PlacementOptions how{{}, {}, options.oversubscribe, map_by, options.rank_by};
  std::vector<ApplicationPlacement> programs = {{all.hosts, options.ranks, options.per_node}};
  for (const Application& program : options.more_applications) {
    ApplicationPlacement& placed = programs.emplace_back();
    placed.ranks = program.ranks;
    placed.per_node = program.per_node;
    if (program.hosts.empty() && program.hostfile.empty()) continue;
    const HostSet own = hosts_of(options, program);
    say_notes(own);
    placed.hosts = own.hosts;
    all.source += "; " + own.source;
    for (const Host& host : own.hosts) {
      const auto is_known = [&host](const Host& known) { return known.name == host.name; };
      if (std::none_of(all.hosts.begin(), all.hosts.end(), is_known)) all.hosts.push_back(host);
    }
  }
  Placement placement = place_applications(programs, how);
  const auto ranks = static_cast<int>(placement.ranks.size());
  if (options.input.kind == InputTarget::Kind::kRank && options.input.rank >= ranks) {
    throw UsageError("--stdin " + std::to_string(options.input.rank) +
                     ": the last rank of this job is " + std::to_string(ranks - 1));
  }
  return placement;
}

// Of a range in which some number fits.
std::uint32_t least(const membership::SizeRange& sizes) {
  std::uint32_t size = sizes.min;
  while (sizes.fit(size) == 0) ++size;
  return size;
}

void complete_elastic_hosts(HostSet& hosts, Options& options) {
  // A pipe says what it has to say once.
  std::error_code error;
  if (!std::filesystem::is_regular_file(hosts.file, error)) hosts.file.clear();
  if (options.ranks) return;
  std::uint32_t slots = 0;
  for (const Host& host : hosts.hosts) slots += static_cast<std::uint32_t>(host.slots);
  std::uint32_t first = options.elastic.sizes().fit(slots);
  // Nobody can keep a machine of a cluster from being taken away, so no more than needed are base.
  if (hosts.is_systems && first != 0) first = least(options.elastic.sizes());
  if (first == 0) {
    throw UsageError(hosts.source + " has " + std::to_string(slots) +
                     " slots, fewer than --elastic needs to begin; add hosts, or lower MIN");
  }
  options.ranks = static_cast<int>(first);
}

// "-H hosts" is a list of one host where there is no such file.
Placement place_as_named(const Options& options, HostSet& hosts) {
  try {
    return place(options, hosts);
  } catch (const UsageError& error) {
    const std::string& value = options.hosts;
    if (value.empty() || value.find_first_of(",:/@[") != std::string::npos ||
        std::filesystem::exists(value)) {
      throw;
    }
    throw UsageError(std::string(error.what()) + "; if a file was meant: there is no file " +
                     value + " here");
  }
}

}  // namespace

HostSet hosts_of(const Options& options, const Application& program) {
  HostRequest request;
  request.list_or_file = program.hosts;
  request.hostfile = program.hostfile;
  const bool names_hosts = !program.hosts.empty() || !program.hostfile.empty();
  if (!options.host_discovery.empty() && !names_hosts) {
    request.discovery = split_command(options.host_discovery, "--host-discovery");
  }
  request.rules.refuses_repeats = options.hostfile_strict;
  // What would be ignored later is refused now, but for a last line without an end.
  if (options.elastic.is_on()) request.rules = kWatchedHostsRules;
  request.include = options.include;
  request.exclude = options.exclude;
  request.remote_shell = remote_shell_of(options);
  return find_job_hosts(request, current_environment());
}

void say_notes(const HostSet& hosts) {
  for (const std::string& note : hosts.notes) std::cerr << "launcher: " << note << "\n";
}

Placement place_ranks(Options& options, HostSet& hosts) {
  if (options.elastic.is_on()) complete_elastic_hosts(hosts, options);
  Placement placement = place_as_named(options, hosts);
  // Words of --rsh-args alone are for ssh.
  if (options.remote_shell.empty() && options.remote_shell_arguments.empty()) {
    options.remote_shell = default_remote_shell(hosts.scheduler, placement.nodes);
  }
  return placement;
}

std::string warning_of_open_channel(const Options& options, const Placement& placement) {
  const bool has_others = std::any_of(placement.nodes.begin(), placement.nodes.end(),
                                      [](const Host& host) { return !is_this_machine(host); });
  const std::vector<std::string> words = remote_shell_of(options);
  if (options.encryption.empty() || !has_others ||
      std::any_of(words.begin(), words.end(), is_ssh)) {
    return "";
  }
  return "what the launcher itself sends, the job's secret too, goes to other hosts by " +
         words.front() +
         ", which may not encrypt it; where the network cannot be trusted use --rsh ssh";
}

}  // namespace chainmail::launch
