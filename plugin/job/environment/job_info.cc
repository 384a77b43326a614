// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/job_info.h"

#include <algorithm>
#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "plugin/job/environment/hydra_proxy.h"

namespace chainmail::internal {
namespace {

constexpr std::array kStarters = {"alone",  "launcher", "torchrun", "kubernetes",
                                  "mpirun", "mpiexec",  "srun",     "sagemaker"};
static_assert(kStarters.size() == static_cast<std::size_t>(Starter::kSageMaker) + 1);
constexpr long long kMaxRanks = 1 << 20;
constexpr long long kMost = std::numeric_limits<int>::max();

std::string show(const Environment& environment, std::string_view name) {
  const auto value = environment(name);
  return std::string(name) + (value ? "=" + *value : " (not set)");
}

[[noreturn]] void incomplete(const Environment& environment, std::string_view starter,
                             std::string_view have, std::string_view missing) {
  throw InvalidArgument(std::string(starter) + ": " + show(environment, have) + " but " +
                        show(environment, missing) + "; both must be set, or neither to run alone");
}

int require(const Environment& environment, std::string_view starter, std::string_view have,
            std::string_view name, long long low, long long high) {
  const auto value = read_integer(environment, name, low, high);
  if (!value) incomplete(environment, starter, have, name);
  return static_cast<int>(*value);
}

// A job of `starter` with rank and size from two variables; the pair must be whole and the rank
// within the size.
JobInfo read_place(const Environment& environment, Starter starter, std::string_view rank_name,
                   std::string_view size_name) {
  JobInfo job;
  job.starter = starter;
  job.rank = require(environment, to_string(starter), size_name, rank_name, 0, kMaxRanks - 1);
  job.size = require(environment, to_string(starter), rank_name, size_name, 1, kMaxRanks);
  if (job.rank >= job.size) {
    throw InvalidArgument(std::string(to_string(starter)) + ": " + show(environment, rank_name) +
                          " is not below " + show(environment, size_name));
  }
  return job;
}

// The same port on every rank of a job, another one for most other jobs.
std::uint16_t port_of(std::string_view id) {
  // Below the kernel's ephemeral range, above the well-known services.
  return static_cast<std::uint16_t>(20000U + hash64(id) % 12000U);
}

bool read_master(const Environment& environment, JobInfo& job) {
  const auto host = environment("MASTER_ADDR");
  const auto port = read_integer(environment, "MASTER_PORT", 1, 65535);
  if (!host && !port) return false;
  if (!host) incomplete(environment, to_string(job.starter), "MASTER_PORT", "MASTER_ADDR");
  if (!port) incomplete(environment, to_string(job.starter), "MASTER_ADDR", "MASTER_PORT");
  job.store = StoreLocation::kTcp;
  job.host = *host;
  job.port = static_cast<std::uint16_t>(*port);
  return true;
}

// Restarts of the job so far.
std::uint32_t read_generation(const Environment& environment, std::string_view name) {
  return static_cast<std::uint32_t>(read_integer(environment, name, 0, kMost).value_or(0));
}

// Where rank 0 serves, on a port that follows from the job's id.
void meet_at(const std::string& host, JobInfo& job) {
  job.store = StoreLocation::kTcp;
  job.host = host;
  job.port = port_of(job.id);
}

struct PlaceNames {
  std::string_view rank;
  std::string_view size;
};

constexpr PlaceNames kRank{"RANK", "WORLD_SIZE"};
constexpr PlaceNames kMpirunPlace{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr PlaceNames kMpiexecPlace{"PMI_RANK", "PMI_SIZE"};

// A starter inside another one gives the ranks other places, and variables do not say which one is
// the inner.
void check_agreement(const Environment& environment, const PlaceNames& names,
                     const PlaceNames& others, std::string_view advice) {
  const auto differ = [&](std::string_view name, std::string_view other, long long low) {
    const auto value = read_integer(environment, name, low, kMaxRanks);
    const auto second = read_integer(environment, other, low, kMaxRanks);
    return value && second && *value != *second;
  };
  if (differ(names.rank, others.rank, 0) || differ(names.size, others.size, 1)) {
    throw InvalidArgument("two starters disagree: " + show(environment, names.rank) + " " +
                          show(environment, names.size) + " but " + show(environment, others.rank) +
                          " " + show(environment, others.size) + "; " + std::string(advice));
  }
}

// srun --mpi=pmi2 and our launcher set PMI_RANK, too; the other one is Hydra's own.
bool has_mpiexec(const Environment& environment) {
  return environment("MPI_LOCALNRANKS") && environment("PMI_RANK");
}

// Our launcher sets them for MPI libraries, and a starter inside it may leave them.
bool has_mpirun(const Environment& environment) {
  return (environment(kMpirunPlace.rank) || environment(kMpirunPlace.size)) &&
         !environment("PMIX_NAMESPACE").value_or("").starts_with("chainmail-");
}

JobInfo read_launcher(const Environment& environment) {
  const auto job_fd = read_integer(environment, "CHAINMAIL_JOB_FD", 0, kMost);
  if (!environment(kRank.rank) || !environment(kRank.size)) {
    throw InvalidArgument(show(environment, "CHAINMAIL_JOB_FD") + " but " +
                          show(environment, kRank.rank) + " and " + show(environment, kRank.size) +
                          ": the launcher sets all three; unset CHAINMAIL_JOB_FD to start the "
                          "program without it");
  }
  JobInfo job = read_place(environment, Starter::kLauncher, kRank.rank, kRank.size);
  // It drops those of a starter around it, so others than its own come from one inside.
  constexpr std::string_view kAdvice =
      "a starter inside a rank of the launcher needs env -u CHAINMAIL_JOB_FD -u RANK -u WORLD_SIZE "
      "before it";
  check_agreement(environment, kRank, kMpirunPlace, kAdvice);
  if (has_mpiexec(environment)) check_agreement(environment, kRank, kMpiexecPlace, kAdvice);
  job.store = StoreLocation::kLauncher;
  job.job_fd = static_cast<int>(*job_fd);
  job.generation = read_generation(environment, "CHAINMAIL_GENERATION");
  return job;
}

JobInfo read_torchrun(const Environment& environment) {
  JobInfo job = read_place(environment, Starter::kTorchrun, kRank.rank, kRank.size);
  const bool is_elastic = environment("TORCHELASTIC_RUN_ID").has_value();
  if (!is_elastic) {
    // Somebody's variables leaked.
    constexpr std::string_view kAdvice = "unset one pair";
    if (has_mpirun(environment)) check_agreement(environment, kRank, kMpirunPlace, kAdvice);
    if (has_mpiexec(environment)) check_agreement(environment, kRank, kMpiexecPlace, kAdvice);
    if (environment("SLURM_STEP_ID")) {
      check_agreement(environment, kRank, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, kAdvice);
    }
  }
  job.generation = read_generation(environment, "TORCHELASTIC_RESTART_COUNT");
  job.id = environment("TORCHELASTIC_RUN_ID").value_or("torchrun");
  job.rank_0_serves = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True";
  if (job.size == 1) return job;
  if (!read_master(environment, job)) {
    throw InvalidArgument("torchrun: " + show(environment, "RANK") + " " +
                          show(environment, "WORLD_SIZE") +
                          " but MASTER_ADDR and MASTER_PORT are not set: ranks cannot meet");
  }
  return job;
}

JobInfo read_mpirun(const Environment& environment) {
  JobInfo job = read_place(environment, Starter::kMpirun, kMpirunPlace.rank, kMpirunPlace.size);
  if (job.size == 1 || read_master(environment, job)) return job;
  auto id = environment("OMPI_MCA_ess_base_jobid");
  if (!id) id = environment("PMIX_NAMESPACE");
  if (!id) {
    throw InvalidArgument(
        "mpirun: neither OMPI_MCA_ess_base_jobid nor PMIX_NAMESPACE is set: ranks cannot meet; "
        "give them MASTER_ADDR and MASTER_PORT with -x");
  }
  job.id = "mpirun-" + *id;
  if (read_integer(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaxRanks) == job.size) {
    job.store = StoreLocation::kLocalSocket;
    return job;
  }
  // Several nodes: rank 0 serves on the node of mpirun, the only one whose address all know.
  const auto uri = environment("OMPI_MCA_orte_hnp_uri");
  const auto address = uri ? first_uri_address(*uri) : std::nullopt;
  if (!address) {
    throw InvalidArgument("mpirun over several nodes: no address in " +
                          show(environment, "OMPI_MCA_orte_hnp_uri") +
                          "; give the ranks MASTER_ADDR (the host of rank 0) and MASTER_PORT "
                          "with -x");
  }
  const auto daemon = environment("OMPI_MCA_orte_local_daemon_uri");
  if (job.rank == 0 && daemon && *daemon != *uri) {
    throw InvalidArgument(
        "mpirun: rank 0 is not on the node where mpirun runs, so the others cannot find it; put "
        "that node first, or give the ranks MASTER_ADDR (the host of rank 0) and MASTER_PORT with "
        "-x");
  }
  meet_at(*address, job);
  return job;
}

JobInfo read_srun(const Environment& environment) {
  const std::string_view size_name =
      environment("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  JobInfo job = read_place(environment, Starter::kSrun, "SLURM_PROCID", size_name);
  if (job.size == 1 || read_master(environment, job)) return job;
  const auto job_id = environment("SLURM_JOB_ID");
  if (!job_id) incomplete(environment, "srun", "SLURM_STEP_ID", "SLURM_JOB_ID");
  job.id = "srun-" + *job_id + "." + environment("SLURM_STEP_ID").value_or("");
  if (read_integer(environment, "SLURM_STEP_NUM_NODES", 1, kMaxRanks) == 1) {
    job.store = StoreLocation::kLocalSocket;
    return job;
  }
  const auto nodes = environment("SLURM_STEP_NODELIST");
  if (!nodes) incomplete(environment, "srun", "SLURM_STEP_ID", "SLURM_STEP_NODELIST");
  meet_at(first_slurm_host(*nodes), job);
  return job;
}

// A pod of an indexed job knows its index alone; the user says the rest in the pod's template.
JobInfo read_kubernetes(const Environment& environment) {
  JobInfo job = read_place(environment, Starter::kKubernetes, "JOB_COMPLETION_INDEX", "WORLD_SIZE");
  job.id = "kubernetes";
  if (job.size == 1 || read_master(environment, job)) return job;
  throw InvalidArgument("kubernetes: " + show(environment, "JOB_COMPLETION_INDEX") + " " +
                        show(environment, "WORLD_SIZE") +
                        " but MASTER_ADDR and MASTER_PORT are not set: ranks cannot meet; give the "
                        "pods the name of pod 0 and a free port");
}

// MPICH, MVAPICH and Intel MPI all start by Hydra.
JobInfo read_mpiexec(const Environment& environment) {
  JobInfo job = read_place(environment, Starter::kMpiexec, kMpiexecPlace.rank, kMpiexecPlace.size);
  job.id = "mpiexec";
  if (job.size == 1 || read_master(environment, job)) return job;
  if (read_integer(environment, "MPI_LOCALNRANKS", 1, kMaxRanks) != job.size) {
    throw InvalidArgument("mpiexec over several nodes: " + show(environment, "MPI_LOCALNRANKS") +
                          " of " + show(environment, "PMI_SIZE") +
                          " ranks are on this one; give the ranks MASTER_ADDR (the host of rank 0) "
                          "and MASTER_PORT with -genv");
  }
  // Nothing that Hydra sets names the job, but all ranks of a node descend from one proxy.
  job.id = "mpiexec-" + std::to_string(hydra_proxy(environment));
  job.store = StoreLocation::kLocalSocket;
  return job;
}

// SageMaker starts the same program once in each container.
JobInfo read_sagemaker(const Environment& environment) {
  JobInfo job;
  job.starter = Starter::kSageMaker;
  const auto list = environment("SM_HOSTS");
  const auto own = environment("SM_CURRENT_HOST");
  if (!list) incomplete(environment, "sagemaker", "SM_CURRENT_HOST", "SM_HOSTS");
  if (!own) incomplete(environment, "sagemaker", "SM_HOSTS", "SM_CURRENT_HOST");
  const std::vector<std::string> hosts = sagemaker_hosts(*list);
  const auto place = std::find(hosts.begin(), hosts.end(), *own);
  if (place == hosts.end()) {
    throw InvalidArgument("sagemaker: " + show(environment, "SM_CURRENT_HOST") + " is not in " +
                          show(environment, "SM_HOSTS"));
  }
  job.rank = static_cast<int>(place - hosts.begin());
  job.size = static_cast<int>(hosts.size());
  job.id = "sagemaker-" + environment("TRAINING_JOB_NAME").value_or(*list);
  if (job.size == 1 || read_master(environment, job)) return job;
  meet_at(hosts.front(), job);
  return job;
}

}  // namespace

const char* to_string(Starter starter) noexcept {
  return kStarters.at(static_cast<std::size_t>(starter));
}

JobInfo read_job_info(const Environment& environment) {
  if (environment("CHAINMAIL_JOB_FD")) return read_launcher(environment);
  const bool has_rank = environment("RANK").has_value();
  if (!has_rank && environment("WORLD_SIZE") && environment("JOB_COMPLETION_INDEX")) {
    return read_kubernetes(environment);
  }
  if (has_rank || environment("WORLD_SIZE") || environment("TORCHELASTIC_RUN_ID")) {
    return read_torchrun(environment);
  }
  const bool is_mpiexec = has_mpiexec(environment);
  if (has_mpirun(environment)) {
    if (is_mpiexec) {
      check_agreement(environment, kMpirunPlace, kMpiexecPlace,
                      "start the inner one by env -u and the names of the outer one's pair");
    }
    return read_mpirun(environment);
  }
  // Before Slurm: Hydra's proxies are tasks of a step there.
  if (is_mpiexec) return read_mpiexec(environment);
  // A batch script has SLURM_PROCID=0 too, but only a step's tasks are ranks.
  if (environment("SLURM_STEP_ID")) return read_srun(environment);
  if (environment("SM_HOSTS") || environment("SM_CURRENT_HOST")) return read_sagemaker(environment);
  return {};
}

std::string first_slurm_host(std::string_view node_list) {
  const auto bad = [&] {
    return InvalidArgument("cannot read the first host of SLURM_STEP_NODELIST=\"" +
                           std::string(node_list) + "\"");
  };
  std::string host;
  for (std::size_t i = 0; i < node_list.size(); ++i) {
    const char c = node_list[i];
    if (c == ',') break;
    if (c != '[') {
      host += c;
      continue;
    }
    const auto close = node_list.find(']', i);
    if (close == std::string_view::npos) throw bad();
    const auto set = node_list.substr(i + 1, close - i - 1);
    const auto first = set.substr(0, set.find_first_of(",-"));
    if (first.empty()) throw bad();
    host += first;
    i = close;
  }
  if (host.empty()) throw bad();
  return host;
}

std::vector<std::string> sagemaker_hosts(std::string_view list) {
  const auto parsed = nlohmann::json::parse(list, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> hosts;
  for (const auto& name : parsed) hosts.push_back(name.is_string() ? name.get<std::string>() : "");
  // Names of hosts need none of JSON's escapes.
  if (!parsed.is_array() || hosts.empty() || list.find('\\') != std::string_view::npos ||
      std::ranges::count(hosts, "") != 0) {
    throw InvalidArgument("cannot read SM_HOSTS=\"" + std::string(list) +
                          "\": it must be a list such as [\"algo-1\",\"algo-2\"]");
  }
  return hosts;
}

std::optional<std::string> first_uri_address(std::string_view uri) {
  constexpr std::string_view kScheme = "tcp://";
  const auto scheme = uri.find(kScheme);
  if (scheme == std::string_view::npos) return std::nullopt;
  const auto rest = uri.substr(scheme + kScheme.size());
  const auto address = rest.substr(0, rest.find_first_of(",:;"));
  if (address.empty()) return std::nullopt;
  return std::string(address);
}

}  // namespace chainmail::internal
