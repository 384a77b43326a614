// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/allocation/host_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "launcher/files/text_file.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/options.h"
#include "launcher/process/command_output.h"

namespace chainmail::launch {
namespace {

// Cluster templates keep the first one (deploy/node), and link the second one to it.
constexpr std::array<std::string_view, 2> kSystemFiles = {"/etc/chainmail/hosts",
                                                          "/etc/openmpi/openmpi-default-hostfile"};

// A pipe counts too: -H <(command) names /dev/fd/63, which the '/' rule already covers.
bool is_regular_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// A file "hosts" is what people have; a file "n1:4", or one with the name of a host that is known
// to exist, is a riddle.
bool reads_as_a_list_too(const std::string& value, const std::vector<Host>& known) {
  if (value.find_first_of(",:") != std::string::npos) return true;
  Host host;
  host.name = value;
  return is_this_machine(host) || std::any_of(known.begin(), known.end(), [&](const Host& other) {
           return is_same_name(other.name, value);
         });
}

// Open MPI installs its default hostfile with nothing but comments in it.
bool names_a_host(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] != '#') return true;
  }
  return false;
}

HostsError discovery_failure(const std::string& program, const CommandOutput& output,
                             std::chrono::milliseconds limit) {
  std::string message = "--host-discovery " + program + " " + output.failure +
                        "; it must print lines such as 'node1 slots=4' and exit with 0 within " +
                        std::to_string(limit.count()) + " ms";
  std::istringstream lines(output.err.empty() ? output.out : output.err);
  int count = 0;
  for (std::string line; std::getline(lines, line) && count < 10; ++count) {
    message += "\n  | " + printable(line);
  }
  return HostsError(message);
}

CommandOutput run(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  try {
    return RunningCommand(command, "")
        .finish(std::chrono::steady_clock::now() + limit, kMaxHostTextBytes);
  } catch (const SystemError& error) {
    throw HostsError("--host-discovery: " + std::string(error.what()) +
                     "; it must be executable, and its first line name an interpreter");
  }
}

}  // namespace

HostSet hosts_in_file(const std::string& path, const HostfileRules& rules) {
  HostSet set;
  set.source = "hostfile " + path;
  set.file = path;
  set.text = read_host_text(path, "hostfile");
  set.hosts = parse_hostfile(set.text, path, rules);
  set.is_systems = std::ranges::find(kSystemFiles, path) != kSystemFiles.end();
  return set;
}

HostSet hosts_of_argument(const std::string& value, const HostfileRules& rules,
                          const std::vector<Host>& known) {
  if (value.find('/') != std::string::npos) return hosts_in_file(value, rules);
  if (is_regular_file(value)) {
    if (reads_as_a_list_too(value, known)) {
      throw UsageError("-H " + value +
                       " names a file here and is a list of hosts as well; write -H ./" + value +
                       " for the file, or rename it");
    }
    return hosts_in_file(value, rules);
  }
  HostSet set;
  set.source = "host list " + value;
  set.hosts = parse_host_list(value, "-H");
  return set;
}

HostSet discovered_hosts(const std::vector<std::string>& command, const HostfileRules& rules,
                         std::chrono::milliseconds limit) {
  const CommandOutput output = run(command, limit);
  if (!output.failure.empty()) throw discovery_failure(command.front(), output, limit);
  HostSet set;
  set.source = "host discovery by " + command.front();
  set.text = output.out;
  if (!output.out.empty() && output.out.back() != '\n') set.text += '\n';
  set.hosts = parse_hostfile(output.out, "output of " + command.front(), rules);
  return set;
}

std::optional<HostSet> hosts_of_variable(const Environment& variables, const std::string& name,
                                         const HostfileRules& rules) {
  const auto path = value_of(variables, name);
  if (!path) return std::nullopt;
  HostSet set = hosts_in_file(*path, rules);
  set.source += " ($" + name + ")";
  return set;
}

std::optional<HostSet> default_hosts(const Environment& variables, const HostfileRules& rules,
                                     const std::string& root) {
  // The Kubernetes MPI operator sets the first and the last two, for the file that it mounts.
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
                           "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"}) {
    if (auto set = hosts_of_variable(variables, name, rules)) return set;
  }
  for (const std::string_view name : kSystemFiles) {
    const std::string path = root + std::string(name);
    if (is_regular_file(path) && names_a_host(read_host_text(path, "hostfile"))) {
      HostSet set = hosts_in_file(path, rules);
      set.is_systems = true;
      return set;
    }
  }
  return std::nullopt;
}

HostSet this_machine() {
  HostSet set;
  set.source = "this machine";
  Host& host = set.hosts.emplace_back();
  host.name = "localhost";
  host.slots = usable_processors();
  host.has_slots = true;
  return set;
}

}  // namespace chainmail::launch
