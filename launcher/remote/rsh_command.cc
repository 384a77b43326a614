// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/rsh_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "launcher/job/environment.h"
#include "launcher/job/options.h"
#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

// They are options of srun that sbatch, salloc and users set for programs.
constexpr std::array kNotForStarters = {
    // The agent's frames are binary and use all three streams.
    "SLURM_LABELIO", "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE",
    // The step of an agent may use every processor that the job has on the node; each of these
    // means or implies --exact.
    "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
    "SLURM_THREADS_PER_CORE", "SLURM_HINT",
    // And every GPU; these count per task or per job, while the step is one task on one node.
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU", "SLURM_CPUS_PER_GPU", "SLURM_GPU_BIND", "SLURM_GRES",
    "SLURM_TRES_PER_TASK"};

std::string starter_of(Scheduler scheduler) {
  switch (scheduler) {
    case Scheduler::kGridEngine:
      // Not -nostdin, which Open MPI adds: our channel is standard input.
      return "qrsh -inherit -V";
    case Scheduler::kSlurm:
      // One task that may use all that the job has on the node, beside other steps; what ranks are
      // bound to is the agent's business. Without --unbuffered what the agent writes waits for a
      // line's end, which its frames do not have.
      return "srun --nodes=1 --ntasks=1 --nodelist=%h --overlap --cpu-bind=none --mpi=none --quiet "
             "--unbuffered";
    case Scheduler::kLsf:
      return "blaunch";
    case Scheduler::kPbs:
      // What pbsdsh starts reads /dev/null and writes to the job's output file.
    case Scheduler::kNone:
    case Scheduler::kSageMaker:
    case Scheduler::kAzureBatch:
      break;
  }
  return "ssh";
}

bool is_for_ssh(const Host& host) { return host.port || !host.user.empty(); }

std::string name_of(const std::string& program) { return program.substr(program.rfind('/') + 1); }

// Characters that mean nothing to any shell, at any place of a word.
bool is_plain(std::string_view word, std::string_view also) {
  return std::all_of(word.begin(), word.end(), [also](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also.find(c) != std::string_view::npos;
  });
}

// Hosts come from files that others may write. '%' is of IPv6 scopes: fe80::1%eth0.
void check_names(const Host& host) {
  if (host.name.empty() || host.name.front() == '-' || !is_plain(host.name, "._:%-")) {
    throw UsageError(
        "'" + host.name +
        "' is not a valid host name: use letters, digits and . _ : % -, and no '-' at the "
        "start");
  }
  if (!host.user.empty() && (host.user.front() == '-' || !is_plain(host.user, "._@+-"))) {
    throw UsageError("'" + host.user + "' is not a valid user name for host " + host.name +
                     ": use letters, digits and . _ @ + -, and no '-' at the start");
  }
}

void add_ssh_options(std::vector<std::string>& words) {
  // No pty (it would change bytes), no questions, no hanging, no forwardings of the user's
  // configuration that a second session could not get, and no connection that outlives the job
  // because this session became the master of others. How long a host may be silent is the lease's
  // to say, not ssh's. Whether host keys are checked is the user's; never is a check switched off
  // here.
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=0", "ClearAllForwardings=yes",
        "ForwardAgent=no", "EscapeChar=none", "ControlMaster=no", "RemoteCommand=none"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.insert(words.end(), {"-T", "-x"});
}

void add_login(const Host& host, std::vector<std::string>& words) {
  if (host.port) words.insert(words.end(), {"-p", std::to_string(*host.port)});
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
}

// True when "%h" stood somewhere and was replaced.
bool insert_host(const std::string& name, std::vector<std::string>& words) {
  bool inserted = false;
  for (std::string& word : words) {
    for (std::size_t at = word.find("%h"); at != std::string::npos;
         at = word.find("%h", at + name.size())) {
      word.replace(at, 2, name);
      inserted = true;
    }
  }
  return inserted;
}

bool names_option(std::span<const std::string> words, std::initializer_list<const char*> names) {
  return std::any_of(words.begin(), words.end(), [&names](const std::string& word) {
    return std::any_of(names.begin(), names.end(),
                       [&word](const char* name) { return word.rfind(name, 0) == 0; });
  });
}

// What srun must be told to give the agent a channel, the component that the host belongs to and
// the GPUs that the job has there; also behind other words, such as those of env or timeout.
void add_srun_options(const Host& host, std::vector<std::string>& words) {
  const auto srun = std::find_if(words.begin(), words.end(),
                                 [](const std::string& word) { return name_of(word) == "srun"; });
  if (srun == words.end()) return;
  // Words before it are those of env or timeout.
  const std::span<const std::string> own(srun, words.end());
  std::vector<std::string> options;
  // As an option too, because it outlives scripts that clear the environment.
  if (!names_option(own, {"--unbuffered", "-u"})) options.push_back("--unbuffered");
  if (host.component && !names_option(own, {"--het-group", "--pack-group"})) {
    options.push_back("--het-group=" + std::to_string(*host.component));
  }
  if (host.gpus && !names_option(own, {"--gpus", "-G", "--gres", "--tres-per"})) {
    options.push_back(*host.gpus == 0 ? "--gres=none" : "--gpus=" + std::to_string(*host.gpus));
  }
  words.insert(srun + 1, options.begin(), options.end());
}

}  // namespace

bool is_ssh(const std::string& program) { return name_of(program) == "ssh"; }

bool is_in_path(const std::string& program) {
  const auto path = value_of(current_environment(), "PATH");
  const std::vector<std::string> files = files_in_path(path.value_or(""), program);
  return path && std::any_of(files.begin(), files.end(), [](const std::string& file) {
           return access(file.c_str(), X_OK) == 0;
         });
}

std::vector<std::string> starter_environment() {
  Environment variables = current_environment();
  for (const char* name : kNotForStarters) variables.erase(name);
  variables.erase("SLURM_UNBUFFEREDIO");
  variables.emplace("SLURM_UNBUFFEREDIO", "1");
  return entries_of(variables);
}

bool is_scheduler_starter(const std::string& program) {
  const std::string name = name_of(program);
  return name == "srun" || name == "qrsh" || name == "blaunch";
}

std::string default_remote_shell(Scheduler scheduler, const std::vector<Host>& hosts,
                                 const std::function<bool(const std::string&)>& installed) {
  if (std::any_of(hosts.begin(), hosts.end(), is_for_ssh)) return "ssh";
  const std::string starter = starter_of(scheduler);
  return installed(starter.substr(0, starter.find(' '))) ? starter : "ssh";
}

std::vector<std::string> remote_shell_command(const std::vector<std::string>& remote_shell,
                                              const Host& host) {
  check_names(host);
  std::vector<std::string> words = remote_shell;
  const bool host_inserted = insert_host(host.name, words);
  add_srun_options(host, words);
  if (is_ssh(remote_shell.front())) {
    add_ssh_options(words);
    add_login(host, words);
  } else if (is_for_ssh(host)) {
    throw UsageError("user and port of host " + host.name + " are for ssh; --rsh " +
                     remote_shell.front() + " does not know them");
  }
  if (!host_inserted) {
    if (is_ssh(remote_shell.front())) words.push_back("--");
    words.push_back(host.name);
  }
  words.push_back("/bin/sh");
  return words;
}

std::string login_line(const std::vector<std::string>& remote_shell, const Host& host,
                       const std::string& command) {
  std::vector<std::string> words = remote_shell;
  const bool host_inserted = insert_host(host.name, words);
  add_srun_options(host, words);
  if (is_ssh(remote_shell.front())) add_login(host, words);
  if (!host_inserted) words.push_back(host.name);
  std::string line;
  for (const std::string& word : words) {
    const bool needs_quotes = word.empty() || !is_plain(word, "/._:%@=,+-");
    line += (needs_quotes ? shell_quoted(word) : word) + " ";
  }
  return line + command;
}

}  // namespace chainmail::launch
