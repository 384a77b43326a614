// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher`: the controller of a job, and with --agent its hand on one node.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/supervisor.h"
#include "launcher/command_line/pages/pages.h"
#include "launcher/command_line/parse.h"
#include "launcher/command_line/verbs.h"
#include "launcher/files/file_lock.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/environment.h"
#include "launcher/job/exit_code.h"
#include "launcher/jobs/commands/verb_call.h"
#include "launcher/jobs/job_command.h"
#include "launcher/output/job_directory.h"
#include "launcher/process/child_process.h"
#include "launcher/process/signals.h"
#include "launcher/remote/agent_image.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/run/job_file/job_run.h"
#include "launcher/run/job_file/job_verb.h"
#include "launcher/run/job_plan.h"
#include "launcher/run/plan_report.h"
#include "launcher/run/worlds.h"

namespace {

using namespace chainmail::launch;

// This process holds the job's secret. Ranks are programs of their own and dump as the user likes.
void forbid_core_dumps() { prctl(PR_SET_DUMPABLE, 0); }

// What the caller asked for; a script that gets half of it has to know.
int print(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw chainmail::system_error("cannot write standard output");
  return 0;
}

// For packages; nobody else needs them.
std::optional<std::string> written_page(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments.front() == "--write-man") {
    return man_page(CHAINMAIL_VERSION);
  }
  if (arguments.size() == 2 && arguments.front() == "--write-completion") {
    return completion_for(arguments.back());
  }
  return std::nullopt;
}

// Of the verbs that have none of their own.
std::optional<std::string> help_of_verb(const std::vector<std::string>& arguments) {
  const bool is_asked = arguments.size() == 2 && (arguments[1] == "--help" || arguments[1] == "-h");
  const JobVerb* const verb = is_asked ? find_verb(arguments.front()) : nullptr;
  return verb == nullptr ? std::nullopt : std::optional(help_of(*verb));
}

int run(const std::vector<std::string>& arguments, const std::vector<int>& ignored_signals) {
  if (const auto code = run_verb(arguments)) return *code;
  if (const auto help = help_of_verb(arguments)) return print(*help);
  if (const auto text = job_verb_text(arguments)) return print(*text);
  if (const auto page = written_page(arguments)) return print(*page);
  if (const auto command = parse_job_command(arguments)) return print(run_job_command(*command));
  Options options = parse_options(arguments);
  if (options.help) return print(usage_text());
  if (options.help_all) return print(full_usage_text());
  if (options.version) return print("chainmail launcher " CHAINMAIL_VERSION "\n");
  // A bad --rsh is the user's mistake even where no host needs it.
  (void)remote_shell_of(options);
  if (options.job.is_on()) return run_job_file(options, arguments, ignored_signals);
  HostSet hosts = hosts_of(options, options);
  say_notes(hosts);
  const Placement placement = place_ranks(options, hosts);
  const Plan plan{options, hosts, placement};
  if (options.dry_run) return print(options.json ? plan_json(plan) : plan_text(plan));
  // Apart from what the ranks print.
  if (options.display_map) std::cerr << plan_text(plan);
  const std::string warning = warning_of_open_channel(options, placement);
  if (!warning.empty()) std::cerr << "launcher: " << warning << std::endl;
  forbid_core_dumps();
  return run_worlds(options, hosts, placement, ignored_signals).end.exit_code;
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
  const std::vector<int> ignored_signals = signals_ignored_by_caller();
  // Until somebody is there to pass them on to.
  ignore_passed_signals();
  open_closed_streams();
  signal(SIGCHLD, SIG_DFL);  // who ignores it gets no exit codes
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 1 && arguments.front() == "--agent-id") {
      std::cout << agent_identity() << "\n";
      return 0;
    }
    if (arguments.size() >= 2 && arguments.front() == "--agent") {
      const bool is_child = arguments.size() > 2 && arguments[2] == kChildOfLauncher;
      if (arguments.size() > 2 && !is_child) remove_staged_agent(arguments[2]);
      forbid_core_dumps();
      char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]);
      ControlGroup group = fork_under_supervisor(arguments[1], {argv[0], end}, is_child);
      const RaisedFileLimit descriptors;
      return Agent(arguments[1], descriptors.before(), std::move(group)).run();
    }
    if (arguments.size() == 1 && arguments.front() == "--outlive") {
      outlive_launcher();
      return 0;
    }
    if (arguments.size() == 2 && arguments.front() == "--keep-lock") {
      keep_lock(std::chrono::milliseconds(std::strtoll(arguments[1].c_str(), nullptr, 10)));
      return 0;
    }
    return run(arguments, ignored_signals);
  } catch (const UsageError& error) {
    return fail(std::string(error.what()) + "; launcher --help shows all options",
                exit_code::kUsage);
  } catch (const HostsError& error) {
    return fail(error.what(), exit_code::kUsage);
  } catch (const std::bad_alloc&) {
    return fail("no memory left for this process: is there a limit (ulimit -v)?",
                exit_code::kLauncherError);
  } catch (const std::system_error& error) {
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again;
    return fail(is_limit ? "cannot start a thread: is there a limit of processes or memory "
                           "(ulimit -u, ulimit -v)?"
                         : error.what(),
                exit_code::kLauncherError);
  } catch (const std::exception& error) {
    return fail(error.what(), exit_code::kLauncherError);
  }
}
