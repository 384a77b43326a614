// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <filesystem>
#include <functional>

#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr const char* kResourceConfig = "/opt/ml/input/config/resourceconfig.json";

HostSet host_set(Scheduler scheduler, const std::string& from, std::vector<Host> hosts) {
  HostSet set;
  set.source = std::string(to_string(scheduler)) + " (" + from + ")";
  set.hosts = std::move(hosts);
  set.scheduler = scheduler;
  return set;
}

using Parse = std::function<std::vector<Host>(std::string_view text, const std::string& where)>;

// What a variable lists; nothing where it is not set.
std::optional<HostSet> hosts_in(const Environment& variables, Scheduler scheduler,
                                const std::string& name, const Parse& parse) {
  const auto text = value_of(variables, name);
  if (!text) return std::nullopt;
  return host_set(scheduler, "$" + name, parse(*text, "$" + name));
}

// What the file lists that a variable names; `what` is that file, for people.
std::optional<HostSet> hosts_in_file_of(const Environment& variables, Scheduler scheduler,
                                        const std::string& name, const std::string& what,
                                        const Parse& parse) {
  const auto path = value_of(variables, name);
  if (!path) return std::nullopt;
  return host_set(scheduler, "$" + name + ", " + *path, parse(read_host_text(*path, what), *path));
}

// A variable that is a number of slots, where it is one.
std::optional<int> slots_in(const Environment& variables, const std::string& name) {
  const auto text = value_of(variables, name);
  if (!text) return std::nullopt;
  const auto value = whole_number(*text);
  return value && *value >= 1 && *value <= kMaxSlotsPerHost ? value : std::nullopt;
}

void give_slots(std::optional<int> slots, std::vector<Host>& hosts) {
  if (!slots) return;
  for (Host& host : hosts) {
    host.slots = *slots;
    host.has_slots = true;
  }
}

void slots_are_processors(std::vector<Host>& hosts) {
  for (Host& host : hosts) host.processors = host.slots;
}

std::optional<HostSet> grid_engine(const Environment& variables) {
  if (auto set = hosts_in_file_of(variables, Scheduler::kGridEngine, "PE_HOSTFILE",
                                  "Grid Engine's $PE_HOSTFILE", parse_pe_hostfile)) {
    slots_are_processors(set->hosts);
    return set;
  }
  // A job without a parallel environment has one host and no file.
  const auto slots = slots_in(variables, "NSLOTS");
  if (!slots || !value_of(variables, "JOB_ID") || !value_of(variables, "SGE_TASK_ID")) {
    return std::nullopt;
  }
  std::vector<Host> hosts(1);
  hosts[0].name = "localhost";
  give_slots(slots, hosts);
  slots_are_processors(hosts);
  return host_set(Scheduler::kGridEngine, "$NSLOTS, a job without -pe", std::move(hosts));
}

// One launcher per task would start the job as often. A shell that has a terminal (srun --pty) is
// started for every task too, but only the first task has the terminal.
void check_slurm_step(const Environment& variables) {
  const auto tasks = slots_in(variables, "SLURM_STEP_NUM_TASKS");
  if (!value_of(variables, "SLURM_STEP_ID") || !tasks || *tasks == 1) return;
  if (value_of(variables, "SLURM_PTY_PORT") && value_of(variables, "SLURM_PROCID") == "0") return;
  throw UsageError("srun started this launcher " + std::to_string(*tasks) +
                   " times ($SLURM_STEP_NUM_TASKS); say 'launcher ./program' in the batch "
                   "script, or 'srun ./program' without the launcher");
}

std::optional<HostSet> slurm(const Environment& variables) {
  const auto has = [&variables](const char* name) { return value_of(variables, name).has_value(); };
  // salloc tells of a heterogeneous job nothing but its components.
  if (!has("SLURM_JOB_NODELIST") && !has("SLURM_NODELIST") &&
      !has("SLURM_JOB_NODELIST_HET_GROUP_0")) {
    return std::nullopt;
  }
  check_slurm_step(variables);
  const auto job = value_of(variables, "SLURM_JOB_ID");
  HostSet set = host_set(Scheduler::kSlurm, job ? "job " + *job : "$SLURM_JOB_NODELIST",
                         slurm_hosts(variables));
  // A step has a distribution of its own.
  const std::string distribution = value_of(variables, "SLURM_DISTRIBUTION").value_or("");
  set.takes_turns = !has("SLURM_STEP_ID") && distribution.rfind("cyclic", 0) == 0;
  if (is_in_slurm_step_of_one_task(variables)) {
    set.notes.push_back(
        "this is a step of one task, which is not told the tasks of its job: slots "
        "are the job's processors; -n and --per-node take fewer");
  }
  return set;
}

std::optional<HostSet> pbs(const Environment& variables) {
  const int slots_per_line = slots_in(variables, "PBS_PPN").value_or(1);
  return hosts_in_file_of(variables, Scheduler::kPbs, "PBS_NODEFILE", "the $PBS_NODEFILE of PBS",
                          [&](std::string_view text, const std::string& where) {
                            return parse_pbs_nodefile(text, where, slots_per_line);
                          });
}

// The first host may be there for the batch script only; LSF does not say so.
void warn_of_launch_node(HostSet& set) {
  const std::vector<Host>& hosts = set.hosts;
  if (hosts.size() < 2 || hosts[0].slots != 1) return;
  if (!std::all_of(hosts.begin() + 1, hosts.end(), [](const Host& h) { return h.slots > 1; })) {
    return;
  }
  set.notes.push_back("LSF gives " + hosts[0].name + " one slot and every other host more; if " +
                      hosts[0].name + " is a launch node, say --exclude " + hosts[0].name);
}

std::optional<HostSet> lsf(const Environment& variables) {
  auto set = hosts_in(variables, Scheduler::kLsf, "LSB_MCPU_HOSTS", parse_lsf_counts);
  if (!set) {
    set = hosts_in_file_of(variables, Scheduler::kLsf, "LSB_DJOB_HOSTFILE",
                           "the $LSB_DJOB_HOSTFILE of LSF", parse_lsf_names);
  }
  if (!set) set = hosts_in(variables, Scheduler::kLsf, "LSB_HOSTS", parse_lsf_names);
  if (!set) return std::nullopt;
  slots_are_processors(set->hosts);
  warn_of_launch_node(*set);
  return set;
}

std::optional<HostSet> sagemaker(const Environment& variables, const std::string& root) {
  const std::string config = root + kResourceConfig;
  std::error_code error;
  auto set = hosts_in(variables, Scheduler::kSageMaker, "SM_HOSTS", parse_sagemaker_hosts);
  if (!set && std::filesystem::is_regular_file(config, error)) {
    const std::string text = read_host_text(config, "SageMaker's resource configuration");
    set = host_set(Scheduler::kSageMaker, config, parse_sagemaker_config(text, config));
  }
  if (set) give_slots(slots_in(variables, "SM_NUM_GPUS"), set->hosts);
  return set;
}

std::optional<HostSet> azure_batch(const Environment& variables) {
  const auto list = [](std::string_view text, const std::string& where) {
    return parse_azure_list(text, where, text.find(';') == std::string_view::npos ? ',' : ';');
  };
  for (const char* name : {"AZ_BATCH_HOST_LIST", "AZ_BATCH_NODE_LIST"}) {
    if (auto set = hosts_in(variables, Scheduler::kAzureBatch, name, list)) return set;
  }
  const auto hostfile = [](std::string_view text, const std::string& where) {
    return parse_hostfile(text, where);
  };
  if (auto set = hosts_in_file_of(variables, Scheduler::kAzureBatch, "AZ_BATCHAI_MPI_HOST_FILE",
                                  "Batch AI's $AZ_BATCHAI_MPI_HOST_FILE", hostfile)) {
    return set;
  }
  auto set = hosts_in(variables, Scheduler::kAzureBatch, "AZ_BATCHAI_WORKER_HOSTS",
                      parse_batch_ai_workers);
  if (set) give_slots(slots_in(variables, "AZ_BATCHAI_NUM_GPUS"), set->hosts);
  return set;
}

}  // namespace

std::optional<HostSet> scheduler_hosts(const Environment& variables, const std::string& root) {
  if (auto set = grid_engine(variables)) return set;
  if (auto set = slurm(variables)) return set;
  if (auto set = pbs(variables)) return set;
  if (auto set = lsf(variables)) return set;
  if (auto set = sagemaker(variables, root)) return set;
  return azure_batch(variables);
}

const char* to_string(Scheduler scheduler) noexcept {
  constexpr const char* kNames[] = {"",    "Grid Engine", "Slurm",      "PBS",
                                    "LSF", "SageMaker",   "Azure Batch"};
  return kNames[static_cast<std::size_t>(scheduler)];
}

}  // namespace chainmail::launch
