// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher`: the controller of a job, and with --agent its hand on one node.

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/warden.h"
#include "launcher/controller/controller.h"
#include "launcher/controller/rank_environment.h"
#include "launcher/controller/verdict.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/job_hosts.h"
#include "launcher/options.h"
#include "launcher/placement.h"
#include "launcher/plan_report.h"
#include "launcher/remote/agent_image.h"

namespace {

using namespace chainmail::launch;

HostSet hosts_of(const Options& options) {
  HostRequest request;
  request.list_or_file = options.hosts;
  request.hostfile = options.hostfile;
  if (!options.host_discovery.empty()) {
    request.discovery = split_command(options.host_discovery, "--host-discovery");
  }
  request.refuses_repeats = options.hostfile_strict;
  request.include = options.include;
  request.exclude = options.exclude;
  if (!options.remote_shell.empty()) request.remote_shell = split_command(options.remote_shell);
  HostSet hosts = find_job_hosts(request, current_environment());
  for (const std::string& note : hosts.notes) std::cerr << "launcher: " << note << "\n";
  return hosts;
}

// This process holds the job's secret. Ranks are programs of their own and dump as the user likes.
void forbid_core_dumps() { prctl(PR_SET_DUMPABLE, 0); }

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (options.help) {
    std::cout << usage_text();
    return 0;
  }
  if (options.version) {
    std::cout << "chainmail launcher " << CHAINMAIL_VERSION << "\n";
    return 0;
  }
  // A bad --rsh is the user's mistake even where no host needs it.
  (void)split_command(options.remote_shell);
  const HostSet hosts = hosts_of(options);
  Placement placement =
      place_ranks(hosts.hosts, {options.ranks, options.per_node, options.oversubscribe});
  if (options.dry_run) {
    const Plan plan{options, hosts, placement};
    std::cout << (options.json ? plan_json(plan) : plan_text(plan));
    return 0;
  }
  forbid_core_dumps();
  Controller controller(options, std::move(placement),
                        std::filesystem::read_symlink("/proc/self/exe").string());
  return controller.run();
}

int fail(const std::string& message, int code) {
  std::cerr << "launcher: " << message << "\n";
  return code;
}

// It runs already; nothing of it stays, however the job ends.
void remove_staged_agent(const std::string& folder) {
  (void)unlink((folder + "/launcher").c_str());
  (void)rmdir(folder.c_str());
}

// Whoever starts us with a standard stream closed would have what is opened first in its place,
// and messages written into it.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 1 && arguments.front() == "--agent-id") {
      std::cout << agent_identity() << "\n";
      return 0;
    }
    if (arguments.size() >= 2 && arguments.front() == "--agent") {
      if (arguments.size() > 2) remove_staged_agent(arguments[2]);
      forbid_core_dumps();
      fork_under_warden(arguments[1]);
      return Agent(arguments[1]).run();
    }
    return run(arguments);
  } catch (const UsageError& error) {
    return fail(std::string(error.what()) + "; launcher --help shows all options",
                exit_code::kUsage);
  } catch (const HostsError& error) {
    return fail(error.what(), exit_code::kUsage);
  } catch (const std::exception& error) {
    return fail(error.what(), exit_code::kLauncherError);
  }
}
