// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/plan_report.h"
#include "launcher/command_line/parse.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/hosts/this_machine.h"
#include "launcher/job/environment.h"
#include "launcher/output/job_directory.h"
#include "launcher/placement/cpu_shares.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/tree/tree_shape.h"

namespace chainmail::launch {
namespace {

using Json = nlohmann::ordered_json;
// Without a value: decided when the job starts.
using PlannedVariables = std::map<std::string, std::optional<std::string>>;

struct PlannedRank {
  std::optional<std::vector<int>> cpus;  // where they can be known before an agent runs
  PlannedVariables variables;
  bool is_here = false;
};

std::vector<ExportedVariable> variables_for(const Options& options, int application) {
  std::vector<ExportedVariable> variables = options.common_variables;
  const Application program = applications_of(options)[static_cast<std::size_t>(application)];
  variables.insert(variables.end(), program.variables.begin(), program.variables.end());
  return variables;
}

PlannedVariables variables_of(const Plan& plan, const PlacedRank& rank, bool is_here,
                              const Environment& own) {
  const auto node = static_cast<std::size_t>(rank.node);
  std::vector<std::string> missing;
  Environment exported =
      exported_environment(own, variables_for(plan.options, rank.application), missing);
  add_variables_of(plan.placement.nodes[node], exported);
  PlannedVariables variables(exported.begin(), exported.end());
  const std::pair<const char*, std::size_t> numbers[] = {
      {"RANK", static_cast<std::size_t>(rank.rank)},
      {"WORLD_SIZE", plan.placement.ranks.size()},
      {"LOCAL_RANK", static_cast<std::size_t>(rank.local_rank)},
      {"LOCAL_WORLD_SIZE", static_cast<std::size_t>(plan.placement.ranks_of_node[node])},
      {"NODE_RANK", node},
      {"CHAINMAIL_GENERATION", 0},
  };
  for (const auto& [name, value] : numbers) variables[name] = std::to_string(value);
  if (plan.options.elastic.is_on()) {
    variables["CHAINMAIL_ELASTIC"] = plan.options.elastic.sizes_text();
  }
  variables["CHAINMAIL_JOB_FD"] = std::nullopt;
  variables["CHAINMAIL_TERMINAL"] = isatty(STDOUT_FILENO) == 1 ? "1" : "0";
  if (plan.options.torchrun_env) {
    variables["MASTER_ADDR"] = std::nullopt;
    variables["MASTER_PORT"] = std::nullopt;
  }
  if (!is_here || !own.contains("OMP_NUM_THREADS")) {
    variables.emplace("OMP_NUM_THREADS", std::nullopt);
  }
  if (!is_here || !own.contains("OMP_WAIT_POLICY")) variables.emplace("OMP_WAIT_POLICY", "passive");
  return variables;
}

std::vector<PlannedRank> planned_ranks(const Plan& plan) {
  const Placement& placement = plan.placement;
  std::vector<PlannedRank> ranks(placement.ranks.size());
  const Environment own = current_environment();
  const auto cores = usable_cores();
  std::vector<int> all;
  for (const Core& core : cores) all.insert(all.end(), core.cpus.begin(), core.cpus.end());
  for (std::size_t i = 0; i < placement.ranks.size(); ++i) {
    const PlacedRank& rank = placement.ranks[i];
    const auto node = static_cast<std::size_t>(rank.node);
    PlannedRank& planned = ranks[i];
    planned.is_here = is_this_machine(placement.nodes[node]);
    planned.variables = variables_of(plan, rank, planned.is_here, own);
    if (!planned.is_here) continue;
    const auto shares = share_cores(cores, placement.ranks_of_node[node], plan.options.binding,
                                    placement.nodes[node].processors.value_or(0));
    const CpuShare& share = shares[static_cast<std::size_t>(rank.local_rank)];
    planned.cpus = share.cpus.empty() ? all : share.cpus;
    const auto threads = planned.variables.find("OMP_NUM_THREADS");
    if (threads != planned.variables.end() && !threads->second) {
      threads->second = std::to_string(share.cores);
    }
  }
  return ranks;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// While the job runs; the launcher's pid is not known yet.
std::string events_path(const Options& options) {
  for (const std::string& folder : {options.events_dir, options.output_dir}) {
    if (!folder.empty()) return folder + "/events.jsonl";
  }
  const std::string parent = JobDirectory::parent();
  if (parent.empty()) return "none";
  return parent + "/" + JobDirectory::kPrefix + "PID.*/events.jsonl";
}

const std::string& host_of(const Plan& plan, const PlacedRank& rank) {
  return plan.placement.nodes[static_cast<std::size_t>(rank.node)].name;
}

// By the name of each node, the host that starts its agent; not in it: this machine does.
std::map<std::string, std::string> planned_parents(const Plan& plan) {
  const std::vector<Host>& nodes = plan.placement.nodes;
  std::vector<bool> is_here;
  for (const Host& node : nodes) is_here.push_back(is_this_machine(node));
  const auto remote = std::count(is_here.begin(), is_here.end(), false);
  const bool goes_on = is_ssh(remote_shell_of(plan.options).front());
  const auto parents = parents_of(
      is_here, tree_width(plan.options.tree_width, static_cast<std::size_t>(remote), goes_on));
  std::map<std::string, std::string> names;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (parents[i]) names[nodes[i].name] = nodes[*parents[i]].name;
  }
  return names;
}

// What may become of the ranks of the first world.
std::string elastic_text(const Plan& plan) {
  const ElasticOptions& elastic = plan.options.elastic;
  if (!elastic.is_on()) return "";
  const membership::SizeRange sizes = elastic.sizes();
  std::string text =
      " at first, then " + std::to_string(sizes.min) + " to " + std::to_string(sizes.max);
  if (sizes.multiple > 1) text += ", a multiple of " + std::to_string(sizes.multiple);
  const std::string& file = plan.hosts.file;
  return text + (file.empty() ? "; nobody joins without a hosts file" : "; follows " + file);
}

}  // namespace

std::string plan_json(const Plan& plan) {
  Json out;
  out["source"] = plan.hosts.source;
  out["notes"] = plan.hosts.notes;
  out["program"] = plan.options.program;
  out["events"] = events_path(plan.options);
  const std::vector<Application> programs = applications_of(plan.options);
  out["hosts"] = Json::array();
  const auto parents = planned_parents(plan);
  for (const Host& host : plan.hosts.hosts) {
    const auto parent = parents.find(host.name);
    out["hosts"].push_back(
        {{"name", host.name},
         {"slots", host.slots},
         {"max_slots", or_null(host.max_slots)},
         {"user", host.user.empty() ? Json(nullptr) : Json(host.user)},
         {"port", or_null(host.port)},
         {"is_this_machine", is_this_machine(host)},
         {"started_from", parent == parents.end() ? Json(nullptr) : Json(parent->second)}});
  }
  const std::vector<PlannedRank> planned = planned_ranks(plan);
  out["ranks"] = Json::array();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const PlacedRank& rank = plan.placement.ranks[i];
    Json variables = Json::object();
    for (const auto& [name, value] : planned[i].variables) variables[name] = or_null(value);
    out["ranks"].push_back(
        {{"rank", rank.rank},
         {"host", host_of(plan, rank)},
         {"program", programs[static_cast<std::size_t>(rank.application)].program},
         {"local_rank", rank.local_rank},
         {"node_rank", rank.node},
         {"cpus", or_null(planned[i].cpus)},
         {"environment", variables},
         {"inherits", planned[i].is_here ? "launcher" : "login"}});
  }
  // A file name in "source" may hold any bytes; the output stays valid JSON.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string plan_text(const Plan& plan) {
  std::ostringstream out;
  out << "hosts from: " << plan.hosts.source << "\n";
  const auto parents = planned_parents(plan);
  for (const Host& host : plan.hosts.hosts) {
    out << "  " << (host.user.empty() ? "" : host.user + "@") << host.name
        << "  slots=" << host.slots;
    if (host.max_slots) out << " max_slots=" << *host.max_slots;
    if (host.port) out << " port=" << *host.port;
    if (is_this_machine(host)) out << "  (this machine)";
    const auto parent = parents.find(host.name);
    if (parent != parents.end()) out << "  (started from " << parent->second << ")";
    out << "\n";
  }
  const std::vector<PlannedRank> planned = planned_ranks(plan);
  out << "ranks: " << planned.size() << elastic_text(plan) << "\n";
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const PlacedRank& rank = plan.placement.ranks[i];
    out << "  rank " << rank.rank << " on " << host_of(plan, rank) << ", local rank "
        << rank.local_rank << ", cpus";
    if (!planned[i].cpus) out << " shared out by the agent there";
    for (const int cpu : planned[i].cpus.value_or(std::vector<int>{})) out << " " << cpu;
    out << "\n   ";
    for (const auto& [name, value] : planned[i].variables) {
      out << " " << name << "=" << value.value_or("(when it starts)");
    }
    out << "\n";
  }
  const bool is_kept = !plan.options.events_dir.empty() || !plan.options.output_dir.empty();
  out << "events: " << events_path(plan.options)
      << (is_kept ? "\n" : " (the launcher's PID), while the job runs\n");
  out << "Ranks on this machine inherit the launcher's environment, ranks elsewhere that of a "
         "login.\n";
  return out.str();
}

}  // namespace chainmail::launch
