// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/allocation/job_hosts.h"

#include <algorithm>
#include <optional>

#include "launcher/allocation/core_count.h"
#include "launcher/allocation/host_source.h"
#include "launcher/hosts/host_filter.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

bool counts_slots(Scheduler scheduler) {
  return scheduler == Scheduler::kGridEngine || scheduler == Scheduler::kSlurm ||
         scheduler == Scheduler::kPbs || scheduler == Scheduler::kLsf;
}

// A scheduler's variables may have leaked into a shell where its files are gone; who names the
// hosts needs none of them.
std::optional<HostSet> allocation_beside_users_hosts(const Environment& variables,
                                                     const std::string& root, std::string& note) {
  try {
    auto set = scheduler_hosts(variables, root);
    if (set && !counts_slots(set->scheduler)) set->hosts.clear();
    return set;
  } catch (const std::runtime_error& error) {
    note = std::string("slots are not held against the scheduler's: ") + error.what();
    return std::nullopt;
  }
}

std::optional<HostSet> users_hosts(const HostRequest& request, const Environment& variables,
                                   const std::vector<Host>& known) {
  const HostfileRules& rules = request.rules;
  if (!request.list_or_file.empty()) return hosts_of_argument(request.list_or_file, rules, known);
  if (!request.hostfile.empty()) return hosts_in_file(request.hostfile, rules);
  if (!request.discovery.empty()) return discovered_hosts(request.discovery, rules);
  return hosts_of_variable(variables, "CHAINMAIL_HOSTFILE", rules);
}

int allowed_slots(const Host& granted) { return granted.granted.value_or(granted.slots); }

void hold_against(const HostSet& allocation, HostSet& set) {
  const std::string scheduler = to_string(allocation.scheduler);
  for (Host& host : set.hosts) {
    const auto same =
        std::find_if(allocation.hosts.begin(), allocation.hosts.end(), [&](const Host& other) {
          return is_same_name(other.name, host.name) ||
                 (is_this_machine(host) && is_this_machine(other));
        });
    if (same == allocation.hosts.end()) {
      if (is_this_machine(host)) continue;  // the shell of salloc is on no host of its job
      throw UsageError("host " + host.name + " (" + set.source + ") is not one of this job's in " +
                       allocation.source + "; leave it out, or give no hosts to use the job's");
    }
    host.processors = same->processors;
    host.component = same->component;
    const int allowed = allowed_slots(*same);
    if (host.all_cores) {
      host.all_cores = false;
      host.slots = allowed;
    } else if (!host.has_slots) {
      host.granted = allowed;
    } else if (host.slots > allowed) {
      set.notes.push_back("host " + host.name + " has " + std::to_string(allowed) +
                          (allowed == 1 ? " slot" : " slots") + " and not " +
                          std::to_string(host.slots) + ": more does not belong to this job in " +
                          scheduler);
      host.slots = allowed;
    }
  }
}

HostSet unfiltered_hosts(const HostRequest& request, const Environment& variables,
                         const std::string& root) {
  std::string note;
  const auto allocation = allocation_beside_users_hosts(variables, root, note);
  const auto known = allocation ? allocation->hosts : std::vector<Host>();
  if (auto set = users_hosts(request, variables, known)) {
    if (!note.empty()) set->notes.push_back(note);
    if (allocation) {
      set->scheduler = allocation->scheduler;
      set->takes_turns = allocation->takes_turns;
      if (!allocation->hosts.empty()) hold_against(*allocation, *set);
    }
    return *std::move(set);
  }
  if (auto set = scheduler_hosts(variables, root)) return *std::move(set);
  if (auto set = default_hosts(variables, request.rules, root)) return *std::move(set);
  return this_machine();
}

}  // namespace

HostSet find_job_hosts(const HostRequest& request, const Environment& variables,
                       const std::string& root) {
  HostSet set = unfiltered_hosts(request, variables, root);
  if (!request.include.empty()) {
    set.hosts = include_hosts(std::move(set.hosts), request.include);
    set.source += ", --include " + request.include;
  }
  if (!request.exclude.empty()) {
    set.hosts = exclude_hosts(std::move(set.hosts), request.exclude);
    set.source += ", --exclude " + request.exclude;
  }
  count_cores(request.remote_shell, set.hosts);
  if (set.scheduler == Scheduler::kSlurm) count_slurm_gpus(variables, set);
  return set;
}

}  // namespace chainmail::launch
